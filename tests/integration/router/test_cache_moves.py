"""Sessions that move take their KV blocks along if the pool's engines support it.

Requests to both ends, the client's answer, the record and failures are tested.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import BindingReason
from fairlead.reports.engines import EngineTrouble
from fairlead.reports.moves import CacheFate, MigrationRecord, MoveOutcome, with_transfer
from fairlead.routing.contracts.handovers import ENOUGH
from fairlead.routing.explanations.move_checking import cause_contradictions
from fairlead.routing.scheduling import copying
from fairlead.tables import COPIES_THAT_PAY, EVERY_MOVE, KvTransferFacts, RoutingTable
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.relaying.cache_moves import prompt_to_move
from fairlead_router.relaying.calls import Call
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.running.engine import RunningEngine, engine_starter
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import RunningRouter, ScriptedEngine, World, until

ALWAYS = KvTransferFacts(when=EVERY_MOVE, longest_seconds=PATIENCE_SECONDS)
TEXT = "word" * 2048
"""A text of four routing blocks."""
HOME = {"x-session-id": "s"}


async def settled(
    world: World, transfer: KvTransferFacts | None = ALWAYS, **table: Any
) -> tuple[RunningRouter, ScriptedEngine, ScriptedEngine]:
    """Return a router before two engines, with a session at the first, which drains."""
    running = await world.ready(2, policy="fairlead", kv_transfer=transfer, **table)
    first = await running.ask(text=TEXT, headers=HOME)
    home = first.headers["x-fairlead-instance"]
    source, target = sorted(world.engines, key=lambda engine: engine.name != home)
    drain(world, home, transfer, **table)
    await until(lambda: home not in running.pool.accepting)
    return running, source, target


def drain(world: World, home: str, transfer: KvTransferFacts | None, **table: Any) -> None:
    states = {home: InstanceState.DRAINING}
    world.api.state.set_table(world.table(policy="fairlead", kv_transfer=transfer, version=2, states=states, **table))


def asked(engine: ScriptedEngine) -> list[dict[str, Any]]:
    return [seen["body"] for seen in engine.seen if seen["body"]]


async def migration(world: World) -> MigrationRecord:
    """Return the only move of a session, from its reports after its request got its first token."""
    reports = world.api.state.reports

    def outcomes() -> set[MoveOutcome]:
        found = {row.outcome for one in reports.values() for row in one.migrations}
        return found | {row.outcome for one in reports.values() for row in one.migration_outcomes}

    await until(lambda: MoveOutcome.COMPLETED in outcomes())
    (record,) = (row for one in reports.values() for row in one.migrations)
    for outcome in (row for one in reports.values() for row in one.migration_outcomes):
        record = record if outcome.transfer is None else with_transfer(record, outcome.transfer)
    return record


def at_rest(running: RunningRouter) -> None:
    assert running.busy() == 0
    assert running.scheduler.discrepancies() == ()
    assert running.router.metrics.accounting_errors == 0
    assert not running.pool.account.direct


@pytest.mark.parametrize("stream", [False, True])
async def test_the_blocks_go_ahead_of_the_clients_request_which_stays_as_it_is(world: World, stream: bool) -> None:
    running, source, target = await settled(world)
    answer = await running.ask(text=TEXT + "more", stream=stream, headers=HOME, min_tokens=2)
    assert (answer.status_code, answer.headers["x-fairlead-instance"]) == (200, target.name)
    naming, (fetching, own) = asked(source)[-1], asked(target)
    prompt = {"model": "mock", "messages": [{"role": "user", "content": TEXT + "more"}], "max_tokens": 1, "stream": False}
    assert naming.pop("kv_transfer_params")["do_remote_decode"] is True
    blocks = fetching.pop("kv_transfer_params")
    assert (blocks["remote_engine_id"], blocks["do_remote_prefill"]) == (source.name, True)
    assert naming == fetching == prompt
    assert own["max_tokens"] == 3 and "kv_transfer_params" not in own and own["min_tokens"] == 2
    names = [seen["headers"]["x-request-id"] for seen in target.seen]
    assert names[0] == f"{names[1]}-kv"
    moved = await migration(world)
    assert (moved.cache, moved.tokens_recomputed, moved.tokens_moved > 1000) == (CacheFate.MOVED, 0, True)
    assert moved.transfer_seconds is not None and moved.predicted_transfer_seconds is not None
    assert running.pool.counters.transfers == {"moved": 1}
    await until(lambda: running.busy() == 0)
    at_rest(running)


async def test_in_a_pool_of_prefill_and_decode_a_prompt_moves_between_prefill_instances(world: World) -> None:
    roles = (Role.PREFILL, Role.PREFILL, Role.DECODE)
    await world.start_engines(3)
    table = world.table(policy="fairlead", kv_transfer=ALWAYS, roles=roles)
    world.api.state.set_table(table)
    running = await world.start_router()
    await until(lambda: running.router.informing.synced)
    home = (await running.ask(text=TEXT, headers=HOME)).headers["x-fairlead-instance"]
    source, target = sorted(world.engines[:2], key=lambda engine: engine.name != home)
    entries = tuple(replace(one, state=InstanceState.DRAINING if one.id == home else one.state) for one in table.instances)
    world.api.state.set_table(replace(table, version=2, instances=entries))
    await until(lambda: home not in running.pool.accepting)
    answer = await running.ask(text=TEXT + "more", headers=HOME)
    assert (answer.status_code, answer.headers["x-fairlead-instance"]) == (200, target.name)
    named, (fetched, prefilled), decoded = asked(source)[-1], asked(target), asked(world.engines[2])[-1]
    assert named["kv_transfer_params"]["do_remote_decode"] is True
    assert fetched["kv_transfer_params"]["remote_engine_id"] == source.name, "what the old instance held"
    assert prefilled["kv_transfer_params"]["do_remote_decode"] is True
    assert decoded["kv_transfer_params"]["remote_engine_id"] == target.name, "the decode instance gets it from the new one"
    moved = await migration(world)
    assert (moved.source, moved.target, moved.cache) == (source.name, target.name, CacheFate.MOVED)
    assert not moved.handed_over, "its client's own request carried it"
    await until(lambda: running.busy() == 0)
    at_rest(running)


@pytest.mark.parametrize(
    ("failure", "fate"), [("loss", CacheFate.LOST), ("error", CacheFate.REFUSED), ("silence", CacheFate.LATE), ("", CacheFate.UNNAMED)]
)
async def test_what_does_not_come_is_computed_and_recorded_so(world: World, failure: str, fate: CacheFate) -> None:
    transfer = KvTransferFacts(when=EVERY_MOVE, longest_seconds=0.3 if failure == "silence" else PATIENCE_SECONDS)
    running, source, target = await settled(world, transfer)
    target.fetches, source.hands_on = failure, bool(failure)
    answer = await running.ask(text=TEXT, headers=HOME)
    assert (answer.status_code, answer.headers["x-fairlead-instance"]) == (200, target.name)
    assert "kv_transfer_params" not in asked(target)[-1], "the client's request is sent as it is"
    moved = await migration(world)
    assert (moved.cache, moved.tokens_moved, moved.tokens_recomputed > 1000) == (fate, 0, True)
    assert (running.pool.counters.served, running.pool.counters.failed, running.pool.counters.retries) == (2, 0, 0)
    assert running.pool.counters.transfers == {fate.value: 1}
    await until(lambda: running.busy() == 0)
    at_rest(running)


async def test_a_body_with_a_number_that_json_has_not_moves_like_others(world: World) -> None:
    running, _, target = await settled(world)
    body = f'{{"model": "mock", "messages": [{{"role": "user", "content": "{TEXT}"}}], "max_tokens": 3, "bias": NaN}}'
    answer = await running.client.post("/v1/chat/completions", content=body, headers=HOME)
    assert (answer.status_code, answer.headers["x-fairlead-instance"]) == (200, target.name)
    assert running.pool.counters.transfers == {"moved": 1}


async def test_a_client_that_leaves_in_the_middle_of_a_move_leaves_nothing_counted(world: World) -> None:
    running, source, target = await settled(world)
    target.fetches = "silence"
    asking = asyncio.create_task(running.ask(text=TEXT, headers=HOME))
    await until(lambda: len(asked(target)) == 1)
    assert running.pool.account.direct == {source.name: 1, target.name: 1}
    asking.cancel()
    await until(lambda: running.busy() == 0)
    at_rest(running)


async def test_an_engines_words_which_may_quote_the_prompt_are_not_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    running, _, target = await settled(world)
    target.fetches = "error"
    assert (await running.ask(text=TEXT, headers=HOME)).status_code == 200
    (logged,) = [record.__dict__["error"] for record in caplog.records if record.message == "KV blocks not moved"]
    assert logged == f"{target.name} answered 500"


async def test_a_source_that_dies_costs_its_time_only(world: World) -> None:
    running, source, target = await settled(world)
    await source.stop()
    answer = await running.ask(text=TEXT, headers=HOME)
    assert (answer.status_code, answer.headers["x-fairlead-instance"]) == (200, target.name)
    assert (await migration(world)).cache is CacheFate.LOST
    at_rest(running)


async def test_without_kv_transfer_nobody_is_asked(world: World) -> None:
    running, source, target = await settled(world, None)
    assert (await running.ask(text=TEXT, headers=HOME)).status_code == 200
    assert (len(asked(source)), len(asked(target))) == (1, 1)
    assert (await migration(world)).cache is None


@pytest.mark.parametrize("more", [{"n": 2}, {"prompt_logprobs": 1}])
async def test_what_names_more_than_one_sequence_is_computed_again(world: World, more: dict[str, Any]) -> None:
    running, source, target = await settled(world)
    assert (await running.ask(text=TEXT, headers=HOME, **more)).status_code == 200
    assert (len(asked(source)), len(asked(target)), (await migration(world)).cache) == (1, 1, None)


async def test_an_instance_that_names_no_blocks_is_not_asked_again_for_a_while(world: World) -> None:
    running, source, target = await settled(world)
    source.hands_on = False
    world.api.state.set_table(world.table(policy="fairlead", kv_transfer=ALWAYS, version=3, states={target.name: InstanceState.DRAINING}))
    await until(lambda: target.name not in running.pool.accepting)
    sessions = [(f"{number}" + TEXT, {"x-session-id": f"s{number}"}) for number in range(ENOUGH + 2)]
    for text, headers in sessions:
        assert (await running.ask(text=text, headers=headers)).headers["x-fairlead-instance"] == source.name
    draining = {source.name: InstanceState.DRAINING}
    world.api.state.set_table(world.table(policy="fairlead", kv_transfer=ALWAYS, version=4, states=draining))
    await until(lambda: source.name not in running.pool.accepting)
    for text, headers in sessions:
        assert (await running.ask(text=text, headers=headers)).headers["x-fairlead-instance"] == target.name
    assert running.pool.counters.transfers == {"unnamed": ENOUGH}
    (told,) = running.pool.engines.troubled()
    assert (told.instance, told.trouble) == (source.name, EngineTrouble.KV_NOT_HANDED_ON)
    assert "in its last 3 answers to prefills for other instances, so sessions that leave it are computed again;" in told.words
    world.api.state.set_table(world.table(policy="fairlead", kv_transfer=None, version=5, states=draining))
    await until(lambda: running.pool.table.version == 5)
    assert running.pool.engines.troubled() == (), "nobody asks it any more"


async def test_a_move_that_would_not_pay_is_not_tried(world: World) -> None:
    slow = KvTransferFacts(tokens_per_second=1000.0)  # and 6,250 tokens a second are computed
    running, source, _ = await settled(world, slow)
    await running.ask(text=TEXT, headers=HOME)
    assert (len(asked(source)), (await migration(world)).cache) == (1, None)


@pytest.fixture
async def simulated(world: World) -> AsyncIterator[tuple[RunningRouter, dict[str, RunningEngine]]]:
    with engine_starter() as start:
        engines = [start("--kv-lease-seconds", "3000"), start("--kv-lease-seconds", "3000")]
        addresses = [engine.url.removeprefix("http://") for engine in engines]
        world.api.state.set_table(routing_table(addresses, model="m", policy="fairlead", kv_transfer=ALWAYS))
        running = await world.start_router()
        await until(lambda: running.router.informing.synced)
        yield running, dict(zip(("i0", "i1"), engines, strict=True))


async def test_simulated_engines_hand_a_sessions_blocks_on(world: World, simulated: tuple[RunningRouter, dict[str, RunningEngine]]) -> None:
    running, engines = simulated
    document = {"model": "m", "prompt": TEXT, "max_tokens": 4}
    first = await running.client.post("/v1/completions", json=document, headers=HOME)
    home = first.headers["x-fairlead-instance"]
    addresses = [engine.url.removeprefix("http://") for engine in engines.values()]
    states = {home: InstanceState.DRAINING}
    world.api.state.set_table(routing_table(addresses, model="m", policy="fairlead", kv_transfer=ALWAYS, version=2, states=states))
    await until(lambda: home not in running.pool.accepting)
    turn = {**document, "prompt": TEXT + "next"}
    answer = await running.client.post("/v1/completions", json=turn, headers=HOME)
    assert answer.headers["x-fairlead-instance"] != home
    assert running.pool.counters.transfers == {"moved": 1}
    usage = answer.json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == (usage["prompt_tokens"] - 1) // 16 * 16
    alone = httpx.post(f"{engines[home].url}/v1/completions", json=turn, timeout=PATIENCE_SECONDS)
    assert answer.json()["choices"] == alone.json()["choices"]


async def test_a_cache_can_be_moved_when_nobody_asks(world: World, simulated: tuple[RunningRouter, dict[str, RunningEngine]]) -> None:
    running, engines = simulated
    body = b'{"model": "m", "prompt": "%s", "max_tokens": 4}' % TEXT.encode()
    head = b"POST /v1/completions HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\nx-request-id: r\r\n" % len(body)
    call = Call("r", 0.0, head, body, stream=False, dialect=Dialect.OPENAI, deadline=1.0)
    found = await running.router.moves.move(running.pool, prompt_to_move(call), "i0", "i1", PATIENCE_SECONDS)
    assert (found.fate, found.tokens) == (CacheFate.MOVED, 2048)
    usage = httpx.post(
        f"{engines['i1'].url}/v1/completions", content=body, headers={"content-type": "application/json"}, timeout=PATIENCE_SECONDS
    ).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 2032
    at_rest(running)


async def test_a_prefix_that_many_sessions_share_is_copied_once_and_recorded(
    world: World, simulated: tuple[RunningRouter, dict[str, RunningEngine]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "WINDOW_SECONDS", 1e6)
    running, engines = simulated
    addresses = [engine.url.removeprefix("http://") for engine in engines.values()]

    def table(version: int, state: InstanceState) -> RoutingTable:
        transfer = replace(ALWAYS, copies=COPIES_THAT_PAY, tokens_per_second=1e7)
        found = routing_table(addresses, model="m", policy="sticky", kv_transfer=transfer, version=version, states={"i1": state})
        engine = replace(found.engine, prefill_tokens_per_second=2000.0)
        return replace(found, engine=engine, routing=replace(found.routing, hand_over_budget=1.0))

    world.api.state.set_table(table(2, InstanceState.STARTING))
    await until(lambda: running.pool.accepting == {"i0"})
    for name in "abcd":
        document = {"model": "m", "prompt": TEXT + name, "max_tokens": 4}
        answer = await running.client.post("/v1/completions", json=document, headers={"x-session-id": name})
        assert answer.status_code == 200, answer.text
    world.api.state.set_table(table(3, InstanceState.SERVING))
    await until(lambda: running.pool.counters.transfers == {"moved": 1})
    await until(lambda: any(one.reroutes for one in world.api.state.reports.values()))
    (record,) = (row for one in world.api.state.reports.values() for row in one.reroutes)
    assert (record.trigger, record.source, record.target) == (BindingReason.PREFIX_COPIED, "i0", "i1")
    assert (record.cache, record.tokens_moved) == (CacheFate.MOVED, record.source_hit_tokens)
    assert record.transfer_seconds is not None
    assert record.predicted_transfer_seconds is not None
    assert cause_contradictions(record) == []
    await running.router.copies.look()
    assert running.pool.counters.transfers == {"moved": 1}, "it holds the prefix now"
    document = {"model": "m", "prompt": TEXT + "e", "max_tokens": 4}
    usage = httpx.post(f"{engines['i1'].url}/v1/completions", json=document, timeout=PATIENCE_SECONDS).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 2048
    await until(lambda: not running.pool.account.direct)
    at_rest(running)
