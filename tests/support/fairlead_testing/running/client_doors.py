"""Two addresses for real clients: a simulated engine, and a router in front of two simulated engines.

Tests expect the same behaviour at both.
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
    """An address for clients. `router` is None if the address is an engine's."""

    url: str
    engines: tuple[RunningEngine, ...]
    router: RunningRouter | None = None


@dataclass
class Doors:
    """Opens doors for a test; all are closed when the test ends."""

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
