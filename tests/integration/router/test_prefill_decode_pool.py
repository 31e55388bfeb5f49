"""A pool of two prefill and two decode engines, all of them processes, behind a router process: every policy for such
pools, and kill -9 of an engine of either role under load.
"""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import httpx
from prometheus_client.parser import text_string_to_metric_families

from fairlead.instances import Role
from fairlead.tables import RoutingTable
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.fakes.system_api import ROUTER_TOKEN
from fairlead_testing.running.engine import RunningEngine, engine_starter
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import World

TIME_SCALE = 10
ENGINE = ("--time-scale", str(TIME_SCALE), "--startup-seconds", "0")
IDS = ("p0", "p1", "d0", "d1")
ROLES = (Role.PREFILL, Role.PREFILL, Role.DECODE, Role.DECODE)


@dataclass
class Live:
    """The router's client, its metrics page, and the engines by name."""

    world: World
    client: httpx.AsyncClient
    admin: str
    engines: dict[str, RunningEngine]
    table: RoutingTable

    async def route_by(self, policy: str) -> None:
        """Put a policy in force."""
        self.table = replace(self.table, version=self.table.version + 1, routing=replace(self.table.routing, policy=policy))
        self.world.api.state.set_table(self.table)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self.metric("table_version") != self.table.version:
                await asyncio.sleep(0.02)

    async def metric(self, name: str, **labels: str) -> float:
        """Return the sum of the samples that have these labels."""
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as client:
            text = (await client.get(f"{self.admin}/metrics")).text
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return sum(one.value for one in samples if one.name == f"fairlead_router_{name}" and labels.items() <= one.labels.items())

    async def ask(self, session: int, turn: int, stream: bool) -> tuple[str, httpx.Headers]:
        """Send one turn of a conversation; return how it ended (`served`, `failed`, or `cut` after its first byte)."""
        text = "".join(f"{session:04d}" * 400 for _ in range(turn + 1))
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 40, "stream": stream}
        answer = await self.client.post("/v1/chat/completions", json=body, headers={"x-session-id": f"s{session}"})
        if answer.status_code != 200:
            return "failed", answer.headers
        if not stream:
            return ("served" if answer.json()["usage"]["completion_tokens"] == 40 else "failed"), answer.headers
        events = [line for line in answer.text.split("\n\n") if line]
        if events[-1] == "data: [DONE]":
            return "served", answer.headers
        return ("cut" if len(events) > 1 and "error" in json.loads(events[-1][6:]) else "failed"), answer.headers

    async def together(self, sessions: int) -> list[tuple[str, httpx.Headers]]:
        """Return the outcomes of first turns of this many conversations.

        No engine answers before the router has them all.
        """
        before = await self.metric("submitted_total")
        for engine in self.engines.values():
            engine.process.send_signal(signal.SIGSTOP)
        try:
            asked = [asyncio.create_task(self.ask(session, 0, stream=session % 2 == 0)) for session in range(sessions)]
            async with asyncio.timeout(PATIENCE_SECONDS):
                while await self.metric("submitted_total") < before + sessions:
                    await asyncio.sleep(0.02)
        finally:
            for engine in self.engines.values():
                engine.process.send_signal(signal.SIGCONT)
        return await asyncio.gather(*asked)

    async def converse(self, session: int, seen: list[tuple[str, httpx.Headers]]) -> None:
        """Send six turns, one after another."""
        for turn in range(6):
            seen += [await self.ask(session, turn, stream=True)]

    async def at_rest(self) -> None:
        """Wait until every request has ended once and none is counted as running."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self.metric("in_flight") or await self.metric("waiting"):
                await asyncio.sleep(0.05)
        assert await self.metric("accounting_errors_total") == 0
        assert await self.metric("submitted_total") == await self.metric("requests_total")


async def is_ready(client: httpx.AsyncClient) -> bool:
    """Return whether the router takes requests; its log names the port before it listens there."""
    try:
        return (await client.get("/readyz")).status_code == 200
    except httpx.ConnectError:
        return False


@asynccontextmanager
async def router_process(world: World, engines: dict[str, RunningEngine]) -> AsyncIterator[Live]:
    """Yield a router process that has the table of these engines."""
    addresses = [f"127.0.0.1:{engine.port}" for engine in engines.values()]
    table = routing_table(addresses, ids=IDS, roles=ROLES, model="m", policy="fairlead", prefill_tokens_per_second=6250.0 * TIME_SCALE)
    world.api.state.set_table(table)
    environment = {
        **os.environ,
        "FAIRLEAD_API_URL": world.api.url,
        "FAIRLEAD_API_TOKEN": ROUTER_TOKEN,
        "FAIRLEAD_ROUTER_ID": "router-0",
        "FAIRLEAD_SPOOL_DIR": str(world.directory / "router-0"),
        "FAIRLEAD_LOG_FORMAT": "json",
    }
    command = (sys.executable, "-m", "fairlead_router.main", "--port", "0", "--admin-port", "0")
    process = await asyncio.create_subprocess_exec(*command, env=environment, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        ports: dict[str, int] = {}
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(ports) < 2:
                line = json.loads(await process.stderr.readline())
                if line["event"] in ("listening", "metrics and debug view"):
                    ports[line["event"]] = line["port"]
        drain = asyncio.create_task(process.stderr.read())
        base = f"http://127.0.0.1:{ports['listening']}"
        async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=PATIENCE_SECONDS) as client:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await is_ready(client):
                    await asyncio.sleep(0.02)
            yield Live(world, client, f"http://127.0.0.1:{ports['metrics and debug view']}", engines, table)
        process.terminate()
        await process.wait()
        await drain
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_every_policy_for_such_pools_serves_and_losing_either_engine_costs_no_request(world: World) -> None:
    with engine_starter() as start:
        engines = {name: start(*ENGINE) for name in IDS}
        async with router_process(world, engines) as live:
            for policy in ("static-pd", "mooncake", "dualmap", "fairlead"):
                await live.route_by(policy)
                answers = await live.together(8)
                again = [await live.ask(session, 1, stream=True) for session in range(4)]
                ends = [end for end, _ in (*answers, *again)]
                assert ends == ["served"] * 12, policy
                pairs = {(headers["x-fairlead-instance"], headers["x-fairlead-decode"]) for _, headers in (*answers, *again)}
                assert {one for one, _ in pairs} <= {"p0", "p1"}
                assert {other for _, other in pairs} == {"d0", "d1"}, policy
            assert await live.metric("prefill_seconds_count") == 48
            assert await live.metric("handover_seconds_count") == 32, "the streamed ones"
            assert await live.metric("decode_only_total") == 0
            await live.at_rest()

            for victim, survivors in (("p1", {"p0"}), ("d1", {"d0"})):
                seen: list[tuple[str, httpx.Headers]] = []

                clients = [asyncio.create_task(live.converse(100 + session, seen)) for session in range(8)]
                while len(seen) < 8:
                    await asyncio.sleep(0.005)
                engines[victim].process.kill()
                await asyncio.gather(*clients)
                assert Counter(end for end, _ in seen)["failed"] == 0
                cut = [headers for end, headers in seen if end == "cut"]
                assert all(headers["x-fairlead-decode"] == victim for headers in cut), "only what was being answered there is lost"
                assert len(seen) == 48
                last = {headers["x-fairlead-instance" if victim[0] == "p" else "x-fairlead-decode"] for _, headers in seen[-8:]}
                assert last <= survivors
            await live.at_rest()

            engines["p0"].process.kill()
            alone = [await live.ask(200 + number, 0, stream=True) for number in range(4)]
            assert [end for end, _ in alone] == ["served"] * 4
            assert {headers["x-fairlead-reason"] for _, headers in alone} == {"decode-only"}
            assert await live.metric("decode_only_total", cause="no-prefill") == 4
            await live.at_rest()
