"""Two real vLLM engines with NIXL behind a router: sessions that move take their KV cache along.

They lose nothing when the engine that holds the cache is killed meanwhile.
"""

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from fairlead.instances import InstanceState, Role
from fairlead.reports.moves import CacheFate, MigrationRecord, with_transfer
from fairlead.tables import EVERY_MOVE, KvTransferFacts
from fairlead_router.relaying.cache_moves import Named
from fairlead_router.settings import Timeouts
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.running.vllm_engine import BLOCK_TOKENS, MODEL, VllmEngine
from fairlead_testing.worlds.real_engines import COMPLETIONS, SECONDS, Live
from fairlead_testing.worlds.router_worlds import World, until
from processkube.testing.ports import free_port

SESSIONS = 50
GROUP = 5
"""Sessions that move together: the engines' caches hold no more than a few such groups."""
FIRST, NEXT, LAST = 640, 730, 800
"""Tokens of a session's turns; the second one ends within a block."""
CONNECTOR = json.dumps({"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"})


def with_nixl(tools: str, folder: Path, name: str) -> VllmEngine:
    side_channel = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port())}
    flags = ("--kv-transfer-config", CONNECTOR)
    return VllmEngine(tools=Path(tools), log=folder / f"{name}.log", name=name, flags=flags, environment=side_channel)


@pytest.fixture(scope="module")
def handing_on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, VllmEngine]]:
    tools = os.environ.get("FAIRLEAD_TEST_VLLM")
    if not tools:
        pytest.skip("needs a real vLLM: make test-vllm")
    made = {name: with_nixl(tools, tmp_path_factory.mktemp("nixl"), name) for name in ("i0", "i1")}
    with ExitStack() as ends:
        for engine in made.values():
            ends.callback(engine.kill)
            engine.start()
        for engine in made.values():
            engine.wait_ready()
        yield made


class Moving:
    """A router before the two engines, only one of which takes requests at a time."""

    def __init__(self, world: World, live: Live) -> None:
        self.world = world
        self.live = live
        self.version = 1

    async def serve_at(self, name: str, transfer: KvTransferFacts) -> None:
        """Let only this engine take requests; sessions leave the other with their next request."""
        self.version += 1
        (other,) = self.live.engines.keys() - {name}
        states = {other: InstanceState.DRAINING}
        addresses = [engine.address for engine in self.live.engines.values()]
        self.world.api.state.set_table(
            routing_table(
                addresses, model=MODEL, engine_type="vllm", policy="fairlead", kv_transfer=transfer, version=self.version, states=states
            )
        )
        await until(lambda: self.live.running.pool.accepting == {name} and self.live.running.pool.table.version == self.version, SECONDS)

    async def turn(self, session: str, prompt: list[int], **more: object) -> tuple[str, int, str]:
        """Return the engine that answered, its cached tokens of the prompt, and the text."""
        document = {"model": MODEL, "prompt": prompt, "max_tokens": 8, "ignore_eos": True, "temperature": 0, **more}
        headers = {"x-session-id": session}
        answer = await self.live.running.client.post(COMPLETIONS, json=document, headers=headers, timeout=SECONDS)
        assert answer.status_code == 200, answer.text
        whole = answer.json()
        return answer.headers["x-fairlead-instance"], whole["usage"]["prompt_tokens_details"]["cached_tokens"], whole["choices"][0]["text"]

    async def alone(self, name: str, prompt: list[int]) -> str:
        """Return the answer of one engine, asked without the router."""
        document = {"model": MODEL, "prompt": prompt, "max_tokens": 8, "ignore_eos": True, "temperature": 0}
        async with httpx.AsyncClient(base_url=f"http://{self.live.engines[name].address}", timeout=SECONDS, trust_env=False) as client:
            return str((await client.post(COMPLETIONS, json=document)).json()["choices"][0]["text"])

    async def migrations(self, count: int) -> list[MigrationRecord]:
        """Return the first moves of sessions, with their final records."""
        reports = self.world.api.state.reports

        def ended() -> dict[str, MigrationRecord]:
            found = {row.id: row for one in reports.values() for row in one.migrations}
            for row in (row for one in reports.values() for row in one.migration_outcomes):
                if row.transfer is not None:
                    found[row.id] = with_transfer(found[row.id], row.transfer)
            return {name: row for name, row in found.items() if row.cache is not None}

        await until(lambda: len(ended()) >= count, SECONDS)
        return list(ended().values())


@pytest.fixture
async def moving(world: World, handing_on: dict[str, VllmEngine]) -> Moving:
    world.api.state.set_table(routing_table([engine.address for engine in handing_on.values()], model=MODEL, engine_type="vllm"))
    running = await world.start_router(timeouts=Timeouts(connect=5.0, first_byte=SECONDS, idle=SECONDS, total=SECONDS, shutdown=5.0))
    await until(lambda: bool(running.router.pools.all()), SECONDS)
    await until(lambda: set(running.scheduler.caches.heard) == set(handing_on), SECONDS)
    return Moving(world, Live(running=running, engines=handing_on))


PATIENT = KvTransferFacts(when=EVERY_MOVE, longest_seconds=SECONDS)
HASTY = KvTransferFacts(when=EVERY_MOVE, longest_seconds=0.01)


def cached_of(tokens: int) -> int:
    """Return the tokens in whole blocks; the last block is computed if it ends the prompt."""
    return (tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS


async def test_fifty_sessions_move_with_their_caches(moving: Moving) -> None:
    dice = random.Random(42)
    home, other = "i0", "i1"
    await moving.serve_at(home, PATIENT)
    for group in range(SESSIONS // GROUP):
        prompts = {f"s{group}-{number}": [dice.randrange(10, 1900) for _ in range(LAST)] for number in range(GROUP)}
        for session, prompt in prompts.items():
            assert (await moving.turn(session, prompt[:FIRST]))[:2] == (home, 0)
        await moving.live.agrees(home)
        await moving.serve_at(other, PATIENT)
        moved = await asyncio.gather(*(moving.turn(session, prompt[:NEXT]) for session, prompt in prompts.items()))
        assert [(name, cached) for name, cached, _ in moved] == [(other, cached_of(NEXT))] * GROUP
        for (_, _, said), prompt in zip(moved, prompts.values(), strict=True):
            assert said == await moving.alone(home, prompt[:NEXT])
        await moving.live.agrees(other)
        for session, prompt in prompts.items():
            assert (await moving.turn(session, prompt))[:2] == (other, NEXT // BLOCK_TOKENS * BLOCK_TOKENS)
        home, other = other, home
    assert moving.live.running.pool.counters.transfers == {"moved": SESSIONS}
    found = await moving.migrations(SESSIONS)
    assert Counter(one.cache for one in found) == {CacheFate.MOVED: SESSIONS}
    assert {(one.tokens_moved, one.tokens_recomputed) for one in found} == {(FIRST, 0)}
    beliefs = [belief for (_, basis), belief in moving.live.running.pool.counters.beliefs.items() if basis == "events"]
    assert sum(belief.exact for belief in beliefs) == sum(belief.requests for belief in beliefs) >= SESSIONS
    received = [await moving.live.metric(name, "vllm:nixl_xfer_time_seconds_count") for name in moving.live.engines]
    assert sum(received) >= SESSIONS and min(received) > 0
    seconds = sorted(one.transfer_seconds or 0.0 for one in found)
    print(f"moves took {seconds[0]:.2f} s, median {seconds[len(seconds) // 2]:.2f} s, longest {seconds[-1]:.2f} s")


async def test_a_move_that_comes_late_is_computed_and_recorded_so(moving: Moving) -> None:
    dice = random.Random(43)
    prompt = [dice.randrange(10, 1900) for _ in range(NEXT)]
    await moving.serve_at("i0", HASTY)
    await moving.turn("late", prompt[:FIRST])
    await moving.live.agrees("i0")
    await moving.serve_at("i1", HASTY)
    name, cached, said = await moving.turn("late", prompt)
    assert (name, cached, said) == ("i1", 0, await moving.alone("i0", prompt))
    (record,) = await moving.migrations(1)
    assert (record.cache, record.tokens_moved, record.tokens_recomputed) == (CacheFate.LATE, 0, FIRST)


async def test_a_source_killed_in_the_middle_of_a_move_loses_nothing(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(44)
    prompt = [dice.randrange(10, 1900) for _ in range(NEXT)]
    transfer = KvTransferFacts(when=EVERY_MOVE, longest_seconds=30.0)
    await moving.serve_at("i0", transfer)
    await moving.turn("s", prompt[:FIRST])
    await moving.live.agrees("i0")
    source, moves = moving.live.engines["i0"], moving.live.running.router.moves
    name_blocks = moves._named

    async def killed_then(*asked: object, **more: object) -> Named:
        named = await name_blocks(*asked, **more)  # type: ignore[arg-type]
        source.kill()
        return named

    monkeypatch.setattr(moves, "_named", killed_then)
    await moving.serve_at("i1", transfer)
    try:
        name, cached, said = await moving.turn("s", prompt)
        assert (name, cached) == ("i1", 0)
        (record,) = await moving.migrations(1)
        assert record.cache in {CacheFate.LATE, CacheFate.LOST, CacheFate.REFUSED}
        assert record.tokens_moved == 0
        assert (moving.live.running.pool.counters.failed, moving.live.running.busy()) == (0, 0)
    finally:
        source.start()
        await asyncio.to_thread(source.wait_ready)
    assert said == await moving.alone("i0", prompt), "it is what a single engine says"


@pytest.fixture
def decoding(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, VllmEngine]]:
    """Yield the two engines and a third one, started at the same time, that decodes what they prefill."""
    third = with_nixl(os.environ.get("FAIRLEAD_TEST_VLLM") or "", tmp_path_factory.mktemp("nixl"), "i2")
    with ExitStack() as ends:
        if os.environ.get("FAIRLEAD_TEST_VLLM"):
            ends.callback(third.kill)
            third.start()
        both = request.getfixturevalue("handing_on")
        third.wait_ready()
        yield {**both, "i2": third}


async def test_sessions_move_between_prefill_instances_whose_engines_do_both(world: World, decoding: dict[str, VllmEngine]) -> None:
    dice = random.Random(45)
    addresses = [engine.address for engine in decoding.values()]
    table = routing_table(addresses, model=MODEL, engine_type="vllm", policy="fairlead", kv_transfer=PATIENT)
    roles = (Role.PREFILL, Role.PREFILL, Role.DECODE)

    def serve_at(version: int, leaving: str) -> None:
        found = zip(table.instances, roles, strict=True)
        entries = (replace(one, role=role, state=InstanceState.DRAINING if one.id == leaving else one.state) for one, role in found)
        world.api.state.set_table(replace(table, version=version, instances=tuple(entries)))

    serve_at(1, "i1")
    running = await world.start_router(timeouts=Timeouts(connect=5.0, first_byte=SECONDS, idle=SECONDS, total=SECONDS, shutdown=5.0))
    await until(lambda: running.router.informing.synced, SECONDS)
    moving = Moving(world, Live(running=running, engines=decoding))
    prompts = {f"pd{number}": [dice.randrange(10, 1900) for _ in range(NEXT)] for number in range(GROUP)}
    for session, prompt in prompts.items():
        assert (await moving.turn(session, prompt[:FIRST]))[0] == "i0"
    serve_at(2, "i0")
    await until(lambda: "i0" not in running.pool.accepting, SECONDS)
    for session, prompt in prompts.items():
        name, cached, said = await moving.turn(session, prompt)
        assert (name, cached, said) == ("i1", cached_of(NEXT), await moving.alone("i0", prompt))
    assert running.pool.counters.transfers == {"moved": GROUP}
    assert {(one.source, one.target, one.tokens_moved) for one in await moving.migrations(GROUP)} == {("i0", "i1", FIRST)}
    assert await moving.live.metric("i1", "vllm:nixl_xfer_time_seconds_count") > 0
    assert await moving.live.metric("i2", "vllm:nixl_xfer_time_seconds_count") >= 2 * GROUP, "it fetched every prompt"
