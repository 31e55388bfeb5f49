"""Sessions whose instance leaves: another instance computes their last prompts before their next turns come."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import BindingReason
from fairlead.tables import EVERY_MOVE, KvTransferFacts
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.running.engine import StartEngine, engine_starter
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

WORDS = "of harbours, cranes and pilots there is much to tell, and more of ships. " * 60
PATH = "/v1/chat/completions"


@pytest.fixture
def start_engine() -> Iterator[StartEngine]:
    with engine_starter() as start:
        yield start


async def site(world: World, start_engine: StartEngine, **routing: Any) -> RunningRouter:
    """Return a router before three engines, with sticky sessions."""
    engines = [start_engine() for _ in range(3)]
    table = routing_table([f"127.0.0.1:{engine.port}" for engine in engines], model="m", policy="sticky")
    world.api.state.set_table(replace(table, routing=replace(table.routing, **{"hand_over_budget": 1.0, **routing})))
    running = await world.start_router()
    await until(lambda: running.router.informing.synced)
    return running


async def turn(running: RunningRouter, session: str, *said: str) -> tuple[str, int]:
    """Return the instance that answered, and its cached tokens of the prompt."""
    messages = [{"role": "user", "content": text} for text in (f"{session}: {WORDS}", *said)]
    answer = await running.client.post(PATH, json={"model": "m", "messages": messages, "max_tokens": 4}, headers={"x-session-id": session})
    assert answer.status_code == 200, answer.text
    return answer.headers["x-fairlead-instance"], answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


async def counted(running: RunningRouter, name: str) -> float:
    lines = (await running.admin.get("/metrics")).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def change(world: World, running: RunningRouter, leaving: str, state: InstanceState) -> None:
    table = world.api.state.tables[running.pool.key]
    entries = tuple(replace(one, state=state) if one.id == leaving else one for one in table.instances)
    world.api.state.set_table(replace(table, version=table.version + 1, instances=entries))


async def homes(running: RunningRouter, count: int = 9) -> dict[str, str]:
    """Return sessions that had a turn, with their instances."""
    return {name: (await turn(running, name))[0] for name in (f"s{number}" for number in range(count))}


async def test_the_next_turn_of_each_session_of_an_instance_that_drained_finds_its_prompt_cached(
    world: World, start_engine: StartEngine
) -> None:
    running = await site(world, start_engine)
    where = await homes(running)
    leaving = max(where.values(), key=list(where.values()).count)
    moving = [name for name, home in where.items() if home == leaving]
    submitted, answered = running.pool.counters.submitted, running.pool.counters.output_tokens
    change(world, running, leaving, InstanceState.DRAINING)
    await until(lambda: running.pool.counters.handed_over["warmed"] == len(moving))
    assert (running.pool.counters.submitted, running.pool.counters.output_tokens) == (submitted, answered), "nobody asked for it"
    assert await counted(running, 'fairlead_router_requests_total{outcome="served"') == submitted
    tokens = await counted(running, "fairlead_router_handed_over_tokens_total")
    for name in moving:
        home, cached = await turn(running, name, "go on")
        assert home != leaving
        assert cached > 800, "all of the prompt but its end"
        tokens -= cached
    assert tokens >= 0
    await until(lambda: running.busy() == 0)
    assert not running.scheduler.discrepancies()
    reports = world.api.state.reports
    await until(lambda: sum(len(one.migrations) for one in reports.values()) == len(moving))
    moves = [move for one in reports.values() for move in one.migrations]
    assert {move.trigger for move in moves} == {BindingReason.DRAIN}
    assert {move.session for move in moves} == set(moving)
    assert all(move.handed_over for move in moves)
    assert all(move.tokens_recomputed > 800 for move in moves)


async def test_the_heirs_of_what_a_rollout_replaces_are_instances_of_the_new_revision(world: World, start_engine: StartEngine) -> None:
    running = await site(world, start_engine)
    table = world.api.state.tables[running.pool.key]
    old = tuple(replace(one, revision="old") for one in table.instances)
    world.api.state.set_table(replace(table, version=2, instances=(*old[:2], replace(old[2], state=InstanceState.WARMING, weight=0.01))))
    await until(lambda: running.pool.table.version == 2)
    where = await homes(running)
    leaving = where["s0"]
    moving = [name for name, home in where.items() if home == leaving]
    entries = [replace(one, state=InstanceState.DRAINING) if one.id == leaving else one for one in old]
    new = next(number for number, one in enumerate(entries) if one.id != leaving)
    entries[new] = replace(entries[new], revision="new")
    world.api.state.set_table(replace(table, version=3, instances=tuple(entries)))
    await until(lambda: running.pool.counters.handed_over["warmed"] == len(moving))
    assert {(await turn(running, name, "go on"))[0] for name in moving} == {entries[new].id}


async def test_no_instance_that_leaves_next_is_an_heir(world: World, start_engine: StartEngine) -> None:
    running = await site(world, start_engine)
    table = world.api.state.tables[running.pool.key]
    where = await homes(running)
    leaving = where["s0"]
    moving = [name for name, home in where.items() if home == leaving]
    states = {leaving: InstanceState.DRAINING}
    last = next(one.id for one in table.instances if one.id != leaving)
    entries = tuple(replace(one, state=states.get(one.id, one.state), stays=one.id == last) for one in table.instances)
    world.api.state.set_table(replace(table, version=2, instances=entries))
    await until(lambda: running.pool.counters.handed_over["warmed"] == len(moving))
    assert {(await turn(running, name, "go on"))[0] for name in moving} == {last}


async def test_a_session_that_has_found_another_home_stays_there(world: World, start_engine: StartEngine) -> None:
    running = await site(world, start_engine)
    table = world.api.state.tables[running.pool.key]
    await turn(running, "s0")
    prompts = running.router.heirs._prompts
    [kept] = prompts.of(running.pool.key)
    home = kept.instance
    kept.instance = next(one.id for one in table.instances if one.id != home)  # as if another router had had the last turn
    revisions = {one.id: "old" if one.id in (home, kept.instance) else "new" for one in table.instances}
    entries = tuple(replace(one, revision=revisions[one.id]) for one in table.instances)
    leaving = kept.instance
    world.api.state.set_table(replace(table, version=2, instances=entries))
    await until(lambda: running.pool.table.version == 2)
    change(world, running, leaving, InstanceState.DRAINING)
    await until(lambda: running.pool.counters.handed_over["warmed"] == 1)
    assert (await turn(running, "s0", "go on"))[0] == home


async def test_an_heir_fetches_the_blocks_of_an_instance_that_still_has_them_where_engines_hand_them_on(world: World) -> None:
    moves: dict[str, Any] = {"policy": "fairlead", "kv_transfer": KvTransferFacts(when=EVERY_MOVE, longest_seconds=PATIENCE_SECONDS)}
    running = await world.ready(2, hand_over_budget=1.0, **moves)
    home = (await running.ask(text=WORDS, headers={"x-session-id": "s"})).headers["x-fairlead-instance"]
    change(world, running, home, InstanceState.DRAINING)
    await until(lambda: running.pool.counters.handed_over["warmed"] == 1)
    assert running.pool.counters.transfers == {"moved": 1}
    assert (await running.ask(text=WORDS, headers={"x-session-id": "s"})).headers["x-fairlead-instance"] != home


@pytest.mark.parametrize("failure", ["loss", "error", "silence"])
@pytest.mark.parametrize("budget", [1e-9, 1.0])
async def test_what_cannot_be_fetched_is_computed_within_the_budget_only(
    world: World, monkeypatch: pytest.MonkeyPatch, failure: str, budget: float
) -> None:
    monkeypatch.setattr("fairlead.routing.scheduling.fetching.PATIENCE_SECONDS", 0.3)
    moves: dict[str, Any] = {"policy": "fairlead", "kv_transfer": KvTransferFacts(when=EVERY_MOVE, longest_seconds=0.3)}
    running = await world.ready(2, hand_over_budget=budget, **moves)
    for number in range(6):
        await running.ask(text=f"{number}: {WORDS}", headers={"x-session-id": f"s{number}"})
    kept = list(running.router.heirs._prompts.of(running.pool.key))
    home = max((prompt.instance for prompt in kept), key=[prompt.instance for prompt in kept].count)
    prompts = [prompt for prompt in kept if prompt.instance == home]
    other = next(engine for engine in world.engines if engine.name != home)
    other.fetches = failure
    change(world, running, home, InstanceState.DRAINING)
    await until(lambda: sum(running.pool.counters.transfers.values()) == len(prompts))
    await until(lambda: not any(prompt.is_fetchable for prompt in prompts))
    if budget == 1.0:
        await until(lambda: running.pool.counters.handed_over["warmed"] == len(prompts))
    await asyncio.sleep(0.6)  # two looks
    computed = [seen for seen in other.seen if seen["body"].get("max_tokens") == 1 and "kv_transfer_params" not in seen["body"]]
    assert len(computed) == running.pool.counters.handed_over["warmed"] <= (1 if budget < 1.0 else len(prompts))
    await until(lambda: running.busy() == 0)
    assert not running.scheduler.discrepancies()


async def test_sessions_that_wait_for_the_budget_keep_no_other_from_fetching(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead_router.pools.kept_prompts.MOST_RANKED", 1)
    moves: dict[str, Any] = {"policy": "fairlead", "kv_transfer": KvTransferFacts(when=EVERY_MOVE, longest_seconds=PATIENCE_SECONDS)}
    running = await world.ready(2, hand_over_budget=1e-9, **moves)
    for number in range(8):
        await running.ask(text=f"{number}: {WORDS}", headers={"x-session-id": f"s{number}"})
    kept = list(running.router.heirs._prompts.newest(running.pool.key))
    home = max((prompt.instance for prompt in kept), key=[prompt.instance for prompt in kept].count)
    prompts = [prompt for prompt in kept if prompt.instance == home]
    for prompt in prompts[:2]:
        prompt.is_fetchable = False
    change(world, running, home, InstanceState.DRAINING)
    await until(lambda: running.pool.counters.transfers["moved"] == len(prompts) - 2)


async def test_engines_of_another_revision_are_not_asked_for_blocks_and_nothing_waits_for_them(world: World) -> None:
    moves: dict[str, Any] = {"policy": "fairlead", "kv_transfer": KvTransferFacts(when=EVERY_MOVE, longest_seconds=PATIENCE_SECONDS)}
    running = await world.ready(2, hand_over_budget=1e-9, **moves)
    for number in range(6):
        await running.ask(text=f"{number}: {WORDS}", headers={"x-session-id": f"s{number}"})
    homes = [prompt.instance for prompt in running.router.heirs._prompts.of(running.pool.key)]
    home = max(homes, key=homes.count)
    table = world.api.state.tables[running.pool.key]
    entries = tuple(replace(one, revision="old" if one.id == home else "new") for one in table.instances)
    world.api.state.set_table(replace(table, version=2, instances=entries))
    await until(lambda: running.pool.table.version == 2)
    change(world, running, home, InstanceState.DRAINING)
    await until(lambda: running.pool.counters.handed_over["warmed"] == 1)
    await until(lambda: in_use(running, home) == 0)
    await asyncio.sleep(0.6)  # two looks
    assert not running.pool.counters.transfers
    assert running.pool.counters.handed_over["warmed"] == 1, "the next one has to be saved for"
    reports = world.api.state.reports
    await until(lambda: any(one.migrations for one in reports.values()))
    (move,) = (move for one in reports.values() for move in one.migrations)
    assert (move.handed_over, move.tokens_moved, move.tokens_recomputed > 800) == (True, 0, True)


@pytest.mark.parametrize("hands_on", [True, False])
async def test_no_decode_instance_has_work_with_a_hand_over_between_prefill_instances(world: World, hands_on: bool) -> None:
    await world.start_engines(3)
    transfer = KvTransferFacts(when=EVERY_MOVE, longest_seconds=PATIENCE_SECONDS) if hands_on else None
    roles = (Role.PREFILL, Role.PREFILL, Role.DECODE)
    world.api.state.set_table(world.table(policy="fairlead", kv_transfer=transfer, roles=roles, hand_over_budget=1.0))
    running = await world.start_router()
    await until(lambda: running.router.informing.synced)
    home = (await running.ask(text=WORDS, headers={"x-session-id": "s"})).headers["x-fairlead-instance"]
    heir = next(engine for engine in world.engines[:2] if engine.name != home)
    change(world, running, home, InstanceState.DRAINING)
    await until(lambda: running.pool.counters.handed_over["warmed"] == 1)
    (asked,) = (seen["body"] for seen in heir.seen if seen["body"])
    assert bool((asked.get("kv_transfer_params") or {}).get("do_remote_prefill")) is hands_on
    assert len([seen for seen in world.engines[2].seen if seen["body"]]) == 1, "its client's own"
    await until(lambda: running.busy() == 0)
    assert not running.scheduler.discrepancies()


def in_use(running: RunningRouter, instance: str) -> int:
    return next((row.in_flight for row in running.pool.account.in_flight() if row.instance == instance), 0)


async def test_an_instance_that_drains_is_kept_while_its_sessions_fetch_their_blocks(world: World) -> None:
    moves: dict[str, Any] = {"policy": "fairlead", "kv_transfer": KvTransferFacts(when=EVERY_MOVE, longest_seconds=1.0)}
    running = await world.ready(2, hand_over_budget=1.0, **moves)
    home = (await running.ask(text=WORDS, headers={"x-session-id": "s"})).headers["x-fairlead-instance"]
    other = next(engine for engine in world.engines if engine.name != home)
    other.fetches = "silence"
    change(world, running, home, InstanceState.DRAINING)
    await until(lambda: home not in running.pool.accepting)
    assert in_use(running, home) == 1, "as soon as the router knows that it drains"
    await until(lambda: running.pool.account.direct.get(home) == 1)
    assert in_use(running, home) == 1, "counted once"
    await until(lambda: running.pool.counters.handed_over["warmed"] == 1)
    await until(lambda: in_use(running, home) == 0)


async def test_an_instance_that_drains_is_not_kept_for_longer_than_it_may(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead_router.relaying.heirs.FETCHES_AT_ONCE", 0)
    monkeypatch.setattr("fairlead_router.relaying.heirs.HOLD_SECONDS", 1.0)
    running = await world.ready(2, hand_over_budget=1.0, policy="fairlead", kv_transfer=KvTransferFacts(when=EVERY_MOVE))
    home = (await running.ask(text=WORDS, headers={"x-session-id": "s"})).headers["x-fairlead-instance"]
    change(world, running, home, InstanceState.DRAINING)
    await until(lambda: in_use(running, home) == 1)
    await until(lambda: in_use(running, home) == 0)
    assert not running.pool.counters.handed_over
    version = running.pool.table.version + 1
    world.api.state.set_table(replace(world.api.state.tables[running.pool.key], version=version))
    await until(lambda: running.pool.table.version == version)
    assert in_use(running, home) == 0, "once is enough"


@pytest.mark.parametrize("end", ["no budget any more", "the router ends"])
async def test_nothing_is_kept_by_a_router_that_hands_nothing_over_any_more(
    world: World, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("fairlead_router.relaying.heirs.FETCHES_AT_ONCE", 0)
    monkeypatch.setattr("fairlead_router.relaying.heirs.HOLD_SECONDS", PATIENCE_SECONDS)
    running = await world.ready(2, hand_over_budget=1.0, policy="fairlead", kv_transfer=KvTransferFacts(when=EVERY_MOVE))
    home = (await running.ask(text=WORDS, headers={"x-session-id": "s"})).headers["x-fairlead-instance"]
    change(world, running, home, InstanceState.DRAINING)
    await until(lambda: in_use(running, home) == 1)
    if end == "the router ends":
        running.router.informing.draining = True
    else:
        table = world.api.state.tables[running.pool.key]
        routing = replace(table.routing, hand_over_budget=0.0)
        world.api.state.set_table(replace(table, version=table.version + 1, routing=routing))
    await until(lambda: in_use(running, home) == 0)


async def test_where_no_blocks_are_handed_on_a_drain_waits_for_no_heir(world: World) -> None:
    running = await world.ready(2, hand_over_budget=1e-9, policy="fairlead")
    home = (await running.ask(text=WORDS, headers={"x-session-id": "s"})).headers["x-fairlead-instance"]
    change(world, running, home, InstanceState.DRAINING)
    await until(lambda: home not in running.pool.accepting)
    assert in_use(running, home) == 0


async def test_a_lost_instances_sessions_have_heirs_too(world: World, start_engine: StartEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead_router.relaying.heirs.BLINK_SECONDS", 0.3)
    running = await site(world, start_engine)
    where = await homes(running)
    leaving = where["s0"]
    change(world, running, leaving, InstanceState.LOST)
    await until(lambda: running.pool.counters.handed_over["warmed"] == list(where.values()).count(leaving))
    assert (await turn(running, "s0", "go on"))[1] > 800


async def test_a_prompt_that_is_not_strict_json_has_an_heir_too(world: World) -> None:
    running = await world.ready(2, hand_over_budget=1.0)
    body = f'{{"model": "mock", "prompt": "{WORDS}", "max_tokens": 4, "bias": NaN, "salt": {10**30}}}'
    answer = await running.client.post("/v1/completions", content=body)
    assert answer.status_code == 200, answer.text
    change(world, running, answer.headers["x-fairlead-instance"], InstanceState.DRAINING)
    await until(lambda: running.pool.counters.handed_over["warmed"] == 1)


async def test_what_no_turn_can_go_on_with_is_not_kept(world: World, start_engine: StartEngine) -> None:
    running = await site(world, start_engine)
    answer = await running.client.post("/v1/embeddings", json={"model": "m", "input": WORDS})
    assert answer.status_code == 200, answer.text
    assert list(running.router.heirs._prompts.of(running.pool.key)) == []


async def test_a_client_need_not_wait_for_the_end_of_its_stream_for_its_prompt_to_be_kept(world: World) -> None:
    running = await world.ready(1, hand_over_budget=1.0)
    (engine,) = world.engines
    said = 'data: {"id": "a", "choices": [{"index": 0, "delta": {"content": "word"}, "finish_reason": "stop"}]}\n\n'
    engine.events, engine.stepwise_events = [f"{said}data: [DONE]\n\n", ": and nothing more\n\n"], True
    document = {"model": "mock", "stream": True, "messages": [{"role": "user", "content": WORDS}]}
    async with running.client.stream("POST", PATH, json=document) as answer:
        async for piece in answer.aiter_raw():
            if b"[DONE]" in piece:
                break
    await until(lambda: running.pool.counters.served == 1)
    (kept,) = running.router.heirs._prompts.of(running.pool.key)
    assert kept.instance == engine.name


async def test_without_a_budget_no_prompt_is_kept_and_none_computed(world: World, start_engine: StartEngine) -> None:
    running = await site(world, start_engine, hand_over_budget=0.0)
    where = await homes(running, 3)
    prompts = running.router.heirs._prompts
    assert prompts.bytes == 0
    change(world, running, where["s0"], InstanceState.DRAINING)
    await until(lambda: running.pool.table.version == 2)
    await asyncio.sleep(0.6)
    assert not running.pool.counters.handed_over
    assert (await turn(running, "s0", "go on"))[1] == 0


async def test_a_budget_that_is_taken_back_forgets_all_prompts(world: World, start_engine: StartEngine) -> None:
    running = await site(world, start_engine)
    await homes(running, 3)
    prompts = running.router.heirs._prompts
    assert prompts.bytes > 3 * len(WORDS)
    table = world.api.state.tables[running.pool.key]
    world.api.state.set_table(replace(table, version=2, routing=replace(table.routing, hand_over_budget=0.0)))
    await until(lambda: prompts.bytes == 0)


async def test_a_small_budget_is_kept_to(world: World, start_engine: StartEngine) -> None:
    running = await site(world, start_engine, hand_over_budget=1e-6)
    where = await homes(running)
    leaving = max(where.values(), key=list(where.values()).count)
    change(world, running, leaving, InstanceState.DRAINING)
    await until(lambda: running.pool.counters.handed_over["warmed"] == 1)
    await asyncio.sleep(1.0)
    assert running.pool.counters.handed_over["warmed"] == 1, "the next one has to be saved for"
