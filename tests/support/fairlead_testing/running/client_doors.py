"""Doors for real clients: a simulated engine itself, and a router before two of them.

What holds at one must hold at the other.
"""

from dataclasses import dataclass
from typing import Any

from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.running.engine import RunningEngine, StartEngine
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

MODEL = "tiny/qwen"
ENGINE_FLAGS = ("--model", MODEL, "--kv-cache-tokens", "8192", "--time-scale", "20")


@dataclass(frozen=True, kw_only=True)
class Door:
    """An address for clients. `router` is None at an engine's own door."""

    url: str
    engines: tuple[RunningEngine, ...]
    router: RunningRouter | None = None


@dataclass
class Doors:
    """Opens doors for one test; all are closed with it."""

    world: World
    start_engine: StartEngine

    def engine(self, *flags: str) -> Door:
        engine = self.start_engine(*ENGINE_FLAGS, *flags)
        return Door(url=engine.url, engines=(engine,))

    async def gateway(self, *flags: str, engines: int = 2, table: dict[str, Any] | None = None, **settings: Any) -> Door:
        running = tuple(self.start_engine(*ENGINE_FLAGS, *flags) for _ in range(engines))
        addresses = [f"127.0.0.1:{engine.port}" for engine in running]
        self.world.api.state.set_table(routing_table(addresses, model=MODEL, block_tokens=16, **{"policy": "fairlead"} | (table or {})))
        router = await self.world.start_router(**settings)
        await until(lambda: router.router.informing.synced)
        return Door(url=f"http://127.0.0.1:{router.port}", engines=running, router=router)
