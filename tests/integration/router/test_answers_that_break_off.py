"""Answers that broke off and cannot continue: the end of their clients' streams and their counts, over real HTTP."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from fairlead.instances import InstanceState
from fairlead_router.relaying.carrying_on import REFUSED_SECONDS
from fairlead_testing.worlds.router_worlds import RunningRouter, ScriptedEngine, World, until

CHAT = "/v1/chat/completions"
ASKED = {"model": "mock", "messages": [{"role": "user", "content": "hello"}], "stream": True}
RAW = {"x-script": "raw"}
DONE = "data: [DONE]\n\n"


def chunk(text: str | None = None, ends: str | None = None) -> str:
    delta = {"role": "assistant", "content": ""} if text is None else {"content": text}
    return f"data: {json.dumps({'id': 'x', 'choices': [{'index': 0, 'delta': delta, 'finish_reason': ends}]})}\n\n"


BEGUN = chunk() + chunk("tok")
ERROR = f"data: {json.dumps({'error': {'message': 'KV load failed', 'code': 500}})}\n\n"


def answers(engine: ScriptedEngine, events: str) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    engine.raw = b"%b%x\r\n%b\r\n0\r\n\r\n" % (head, len(events), events.encode())


def refuses(engine: ScriptedEngine) -> None:
    body = json.dumps({"error": {"message": "continue_final_message is not known", "code": 400}}).encode()
    engine.raw = b"HTTP/1.1 400 X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def asked(engine: ScriptedEngine) -> list[dict[str, Any]]:
    return [one for one in engine.seen if f" {CHAT} " in one["line"]]


async def stream(running: RunningRouter) -> str:
    return (await running.client.post(CHAT, json=ASKED, headers=RAW)).text


async def counted(running: RunningRouter) -> tuple[int, int, int]:
    """Return the counts of requests served, failed and cancelled."""
    await until(lambda: running.busy() == 0)
    assert running.router.metrics.accounting_errors == 0
    assert not running.scheduler.discrepancies()
    counters = running.pool.counters
    return counters.served, counters.failed, counters.cancelled


async def test_the_engines_own_error_is_the_last_event_of_an_answer_that_does_not_go_on(world: World) -> None:
    for mode in ("Disabled", "Enabled"):
        running = await world.ready(1, continue_answers=mode)
        answers(world.engines[-1], BEGUN + ERROR)
        text = await stream(running)
        assert text.count('"error"') == 1, mode
        assert text.endswith(ERROR), mode
        assert await counted(running) == (0, 1, 0)
        await world.stop_router(running)
        world.engines.clear()


async def test_a_stream_that_ends_before_its_answer_says_so(world: World) -> None:
    for mode in ("Disabled", "Enabled"):
        running = await world.ready(1, continue_answers=mode)
        answers(world.engines[-1], BEGUN)
        text = await stream(running)
        assert text.count('"error"') == 1, mode
        assert "i0 ended it: the stream ended before its answer did" in text, mode
        await world.stop_router(running)
        world.engines.clear()


async def test_a_rest_that_is_refused_ends_the_stream_as_if_nobody_had_been_asked(world: World) -> None:
    running = await world.ready(2, policy="round-robin", continue_answers="Enabled")
    second, first = world.engines  # round-robin begins with the second instance
    answers(first, BEGUN + ERROR)
    refuses(second)
    text = await stream(running)
    assert text == BEGUN + ERROR
    assert [len(asked(engine)) for engine in (first, second)] == [1, 1]
    assert await counted(running) == (0, 1, 0)
    assert dict(running.pool.counters.uncarried) == {"refused": 1}


async def test_an_answer_whose_end_the_client_has_had_does_not_go_on(world: World) -> None:
    running = await world.ready(2, policy="round-robin", continue_answers="Enabled")
    second, first = world.engines
    answers(first, BEGUN + chunk("", "stop") + ERROR)
    text = await stream(running)
    assert text.endswith(ERROR)
    assert [len(asked(engine)) for engine in (first, second)] == [1, 0]
    assert dict(running.pool.counters.uncarried) == {"ended": 1}


async def test_a_client_that_leaves_while_the_rest_is_awaited_has_cancelled_and_fails_nobody(world: World) -> None:
    running = await world.ready(2, policy="round-robin", continue_answers="Enabled")
    second, first = world.engines
    answers(first, BEGUN + ERROR)
    asking = asyncio.create_task(stream(running))  # the second engine stays silent
    await until(lambda: bool(asked(second)))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert await counted(running) == (0, 0, 1)
    assert dict(running.pool.counters.upstream_errors) == {"answer": 1}


async def test_an_answer_that_breaks_off_everywhere_is_asked_for_twice(world: World) -> None:
    running = await world.ready(4, policy="round-robin", continue_answers="Enabled")
    for engine in world.engines:
        answers(engine, BEGUN)
    text = await stream(running)
    assert text.count('"error"') == 1
    assert sum(len(asked(engine)) for engine in world.engines) == 2
    assert await counted(running) == (0, 1, 0)
    assert dict(running.pool.counters.uncarried) == {"limit": 1}


@pytest.mark.parametrize(
    ("deaths", "taken_down"),
    [("mmmm", 2), ("bmmm", 2), ("bbmm", 3), ("bbbb", 3)],
    ids=["in the middle", "before and in the middle", "twice before", "before it begins"],
)
async def test_a_request_that_kills_its_engines_does_not_go_through_the_pool(world: World, deaths: str, taken_down: int) -> None:
    running = await world.ready(5, policy="round-robin", continue_answers="Enabled")
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    pieces = {"b": b"", "m": head + b"%x\r\n%b\r\n" % (len(BEGUN), BEGUN.encode())}
    coming = iter(deaths)

    async def die(script: str, document: dict[str, Any], writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        writer.write(pieces[next(coming)])
        await writer.drain()
        raise ConnectionResetError

    for engine in world.engines:
        engine._answer = die  # type: ignore[method-assign]
    answer = await running.client.post(CHAT, json=ASKED)
    assert sum(len(asked(engine)) for engine in world.engines) == taken_down
    assert "rejected-upstream-failed" in answer.text
    assert (await counted(running))[0] == 0


async def test_a_request_whose_answer_has_to_stay_is_not_read_at_each_look(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    running = await world.ready(2, policy="round-robin", continue_answers="Enabled")
    asking = asyncio.create_task(running.ask(stream=True, script="stepwise", max_tokens=2, response_format={"type": "json_object"}))
    await until(lambda: any(call.kept is not None and call.kept.pieces for call in running.router.calls.under_way()))
    (call,) = running.router.calls.under_way()
    read: list[bytes] = []

    def counting(body: bytes) -> Any:
        read.append(body)
        return json.loads(body)

    monkeypatch.setattr("fairlead_router.relaying.carrying_on._document", counting)
    for look in range(5):
        assert not running.router.hand_overs._carrying.may_hand_over(call, running.pool), look
    assert len(read) == 1
    call.stays_until = 0.0
    assert not running.router.hand_overs._carrying.may_hand_over(call, running.pool)
    assert len(read) == 2
    for engine in world.engines:
        engine.step.set()
    assert (await asking).text.endswith(DONE)


async def test_an_engine_that_refused_a_rest_is_believed_for_ten_minutes(world: World) -> None:
    running = await world.ready(2, policy="round-robin", continue_answers="Enabled")
    second, first = world.engines
    answers(first, BEGUN + ERROR)
    refuses(second)
    await stream(running)
    asking = asyncio.create_task(running.ask(stream=True, script="stepwise", max_tokens=2))
    await until(lambda: any(call.kept is not None and call.kept.pieces for call in running.router.calls.under_way()))
    [one] = [engine for engine in world.engines if engine.seen[-1]["headers"].get("x-script") == "stepwise"]
    table = world.api.state.tables[running.pool.key]
    leaving = tuple(replace(entry, state=InstanceState.DRAINING) if entry.id == one.name else entry for entry in table.instances)
    world.api.state.set_table(replace(table, version=2, instances=leaving, routing=replace(table.routing, hand_over_after_seconds=0.0)))
    await until(lambda: running.pool.table.version == 2)
    hand_overs = running.router.hand_overs
    for _ in range(3):
        await hand_overs.look()
    assert len(asked(one)) + len(asked(second if one is first else first)) == 3, "it stays where it is"
    for engine in world.engines:
        running.scheduler.instance_worked(engine.name, running.router.now())
    for refused in hand_overs._carrying._refused:
        hand_overs._carrying._refused[refused] -= REFUSED_SECONDS
    await hand_overs.look()
    await until(lambda: running.pool.counters.carried["drained"] == 1)
    for engine in world.engines:
        engine.step.set()
    assert (await asking).text.endswith(DONE)
