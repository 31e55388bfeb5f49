"""A router before engines with data-parallel ranks.

The chosen rank is sent as a header, and the KV events of each rank concern only that rank.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest

from fairlead.targets import instance_of
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.running.engine import RunningEngine, engine_starter
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

RANKS = 4
SPEED = ("--prefill-tokens-per-second", "1000000", "--decode-step-ms", "1", "--data-parallel-size", str(RANKS))
EVENTS = ("--kv-events-endpoint", "tcp://*:0", "--kv-events-replay-endpoint", "tcp://*:0")
SECONDS = 120.0
TARGETS = {f"{instance}#{rank}" for instance in ("i0", "i1") for rank in range(RANKS)}


@pytest.fixture(scope="module")
def engines() -> Iterator[list[RunningEngine]]:
    """Yield engines each of whose ranks has published an event, which the first router to follow it requests."""
    with engine_starter() as start:
        found = [start(*SPEED, *EVENTS), start(*SPEED, *EVENTS)]
        for number, engine in enumerate(found):
            for rank in range(RANKS):
                document = {"model": "m", "prompt": f"the first of {number} and {rank} " * 40, "max_tokens": 2}
                headers = {"X-Data-Parallel-Rank": str(rank)}
                httpx.post(f"{engine.url}/v1/completions", json=document, headers=headers, timeout=SECONDS).raise_for_status()
        yield found


@asynccontextmanager
async def routed(world: World, engines: list[RunningEngine], policy: str = "fairlead") -> AsyncIterator[RunningRouter]:
    world.api.state.set_table(routing_table([f"127.0.0.1:{engine.port}" for engine in engines], model="m", policy=policy))
    running = await world.start_router()
    await until(lambda: bool(running.router.pools.all()), SECONDS)
    await until(lambda: {load.entry.id for load in running.scheduler.loads() if load.entry.accepting} == TARGETS, SECONDS)
    yield running


async def ask(running: RunningRouter, session: str, text: str, **headers: str) -> httpx.Response:
    document = {"model": "m", "prompt": text, "max_tokens": 2}
    named = {"x-session-id": session, **headers}
    return await running.client.post("/v1/completions", json=document, headers=named, timeout=SECONDS)


def served_by_rank(engine: RunningEngine) -> dict[str, float]:
    page = httpx.get(f"{engine.url}/metrics", timeout=SECONDS).text
    lines = [line for line in page.splitlines() if line.startswith("vllm:request_success_total") and 'finished_reason="length"' in line]
    return {line.partition('engine="')[2].partition('"')[0]: float(line.split()[-1]) for line in lines}


async def test_each_turn_of_a_session_is_computed_by_the_rank_of_its_first(world: World, engines: list[RunningEngine]) -> None:
    before = [served_by_rank(engine) for engine in engines]
    async with routed(world, engines, "sticky") as running:
        homes: dict[int, set[tuple[str, str]]] = defaultdict(set)
        for turn in range(1, 5):
            for session in range(10):
                text = f"session {session}: " + f"turn of {session} " * 60 * turn
                answer = await ask(running, f"s{session}", text)
                assert answer.status_code == 200
                homes[session].add((answer.headers["x-fairlead-instance"], answer.headers["x-fairlead-rank"]))
                cached = (answer.json()["usage"]["prompt_tokens_details"] or {}).get("cached_tokens", 0)
                assert turn == 1 or cached > 100 * (turn - 1), "what the turn before computed is there"
        assert all(len(each) == 1 for each in homes.values())
        assert len({home for each in homes.values() for home in each}) > 2
    by_rank = [
        {rank: count - before[number][rank] for rank, count in served_by_rank(engine).items()} for number, engine in enumerate(engines)
    ]
    sent: dict[tuple[str, str], int] = defaultdict(int)
    for ((instance, rank),) in homes.values():
        sent[instance, rank] += 4
    assert {(f"i{number}", rank): count for number, each in enumerate(by_rank) for rank, count in each.items() if count} == sent


async def test_the_events_of_a_rank_tell_of_that_rank_alone(world: World, engines: list[RunningEngine]) -> None:
    async with routed(world, engines) as running:
        await until(lambda: set(running.scheduler.caches.heard) == TARGETS, SECONDS)
        index, heard = running.scheduler.caches.index, running.scheduler.caches.heard

        def held() -> dict[str, int]:
            return {name: sum(index.blocks(source).values()) for name, source in heard.items()}

        before = held()
        answer = await ask(running, "events", "a prompt that no other test has sent " * 40)
        target = f"{answer.headers['x-fairlead-instance']}#{answer.headers['x-fairlead-rank']}"
        rows = running.router.kv_events.readings()["default/chat", instance_of(target)]
        assert [one.rank for one in rows] == list(range(RANKS))
        await until(lambda: held()[target] > before[target], SECONDS)
        assert {name for name, count in held().items() if count != before[name]} == {target}


async def test_no_client_says_which_rank(world: World, engines: list[RunningEngine]) -> None:
    async with routed(world, engines) as running:
        answer = await ask(running, "mine", "which rank is mine? " * 20, **{"X-Data-Parallel-Rank": "99"})
        assert answer.status_code == 200, "an engine refuses a rank that it has not"


async def test_an_engine_of_one_rank_gets_no_header_and_answers_name_none(world: World) -> None:
    with engine_starter() as start:
        single = start(*SPEED[:-2])
        world.api.state.set_table(routing_table([f"127.0.0.1:{single.port}"], model="m"))
        running = await world.start_router()
        await until(lambda: bool(running.router.pools.all()), SECONDS)
        await until(lambda: running.router.pools.all()[0].engines.pages.keys() == {"i0"}, SECONDS)
        answer = await ask(running, "s", "hello " * 20, **{"X-Data-Parallel-Rank": "3"})
        assert answer.status_code == 200
        assert answer.headers["x-fairlead-instance"] == "i0" and "x-fairlead-rank" not in answer.headers
