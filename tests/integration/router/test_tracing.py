"""Traces over real HTTP: the context that engines get, and spans as a collector stores them."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.reports.decisions import DecisionRecord
from fairlead_router.main import pool_scheduler_factory
from fairlead_router.tracing import exporting
from fairlead_testing.running.collector import ReceivedSpan, Receiver, receiving, running_rotel
from fairlead_testing.worlds import router_worlds
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


async def ready(world: World, endpoint: str | None, engines: int = 2, **changes: Any) -> RunningRouter:
    await world.start_engines(engines)
    world.api.state.set_table(world.table())
    running = await world.start_router(otlp_endpoint=endpoint, **changes)
    await until(lambda: running.router.informing.synced)
    return running


async def ended(world: World, running: RunningRouter) -> list[DecisionRecord]:
    """Return the stored decisions, once the router has stopped and sent all reports."""
    await until(lambda: running.busy() == 0)
    await running.router.collector.collect(final=True)
    await until(lambda: len(running.router.spool) == 0)
    await world.stop_router(running)
    return world.api.state.stored("decisions")


async def requests_of_all_kinds(world: World, running: RunningRouter) -> None:
    """Send requests answered at once and streamed, with a session and without, retried elsewhere, and failed
    everywhere.
    """
    for number in range(4):
        answer = await running.ask(stream=number % 2 == 0, text=f"hello {number}", headers={"x-session-id": f"s{number % 3}"})
        assert answer.status_code == 200
    world.engines[0].broken = True
    for number in range(3):
        assert (await running.ask(stream=True, text=f"again {number}", headers={"traceparent": SAMPLED})).status_code == 200
    world.engines[1].broken = True
    assert (await running.ask()).status_code >= 500


@pytest.mark.parametrize("through", ["receiver", "rotel"])
async def test_a_trace_in_a_collector_equals_the_stored_decision_term_by_term(
    world: World, receiver: Receiver, tmp_path: Path, through: str
) -> None:
    if through == "rotel":
        async with running_rotel(tmp_path, receiver) as url:
            await _compare(world, receiver, url)
    else:
        await _compare(world, receiver, receiver.url)


async def _compare(world: World, receiver: Receiver, endpoint: str) -> None:
    running = await ready(world, endpoint)
    await requests_of_all_kinds(world, running)
    stored = {decision.id: decision for decision in await ended(world, running)}
    assert len(stored) == 8
    await until(lambda: len(receiver.decisions()) == len(stored))
    assert receiver.decisions() == stored
    assert any(one.attempts for one in stored.values())
    assert all(one.weighing.candidates for one in stored.values() if one.outcome == "served" and not one.attempts)
    assert {span.resource["service.name"] for span in receiver.spans} == {"fairlead-router"}
    for decision in stored.values():
        assert decision.trace == _trace_of(receiver, decision)
        _is_whole(decision, [span for span in receiver.spans if span.trace_id == decision.trace])


def _trace_of(receiver: Receiver, decision: DecisionRecord) -> str:
    (span,) = [one for one in receiver.named("fairlead.decision") if one.attributes["fairlead.decision.id"] == decision.id]
    return span.trace_id


def _is_whole(decision: DecisionRecord, spans: list[ReceivedSpan]) -> None:
    roots = [span for span in spans if span.attributes.get("fairlead.decision.id") == decision.id and span.name == "chat mock"]
    (root,) = roots
    mine = [span for span in spans if span.parent == root.span_id]
    assert root.attributes["gen_ai.operation.name"] == "chat"
    assert root.attributes["gen_ai.request.model"] == "mock"
    assert root.kind == "server"
    assert root.is_error is (decision.outcome in ("failed", "refused"))
    assert all(root.start <= span.start <= span.end for span in mine)
    assert len([span for span in mine if span.name == "fairlead.retry" and span.is_error]) == len(decision.attempts)
    if decision.ttft_seconds is not None:
        (prefill,) = [span for span in mine if span.name == "fairlead.prefill"]
        (decode,) = [span for span in mine if span.name == "fairlead.decode"]
        assert prefill.attributes["fairlead.target"] == decision.served_by
        assert prefill.end - root.start == pytest.approx(decision.ttft_seconds * 1e9, abs=1e4)
        assert decode.end == root.end


async def test_an_engine_continues_the_caller_s_trace_below_the_span_of_its_own_work(world: World, receiver: Receiver) -> None:
    running = await ready(world, receiver.url, engines=1)
    await running.ask(stream=True, headers={"traceparent": SAMPLED, "tracestate": "vendor=1"})
    assert [one.trace for one in await ended(world, running)] == [TRACE]
    (asked,) = world.engines[0].seen
    (prefill,) = receiver.named("fairlead.prefill")
    assert asked["headers"]["traceparent"] == f"00-{TRACE}-{prefill.span_id}-01"
    assert asked["headers"]["tracestate"] == "vendor=1"
    (root,) = receiver.named("chat mock")
    assert (root.trace_id, root.parent, root.state) == (TRACE, PARENT, "vendor=1")


async def test_a_caller_that_does_not_sample_its_trace_gets_no_spans_and_its_header_goes_on_as_it_is(
    world: World, receiver: Receiver
) -> None:
    running = await ready(world, receiver.url, engines=1)
    await running.ask(headers={"traceparent": UNSAMPLED})
    (kept,) = await ended(world, running)  # its decision belongs to the sample all the same
    assert kept.trace is None, "nobody exports that trace, so no link may lead to it"
    assert world.engines[0].seen[0]["headers"]["traceparent"] == UNSAMPLED
    assert receiver.spans == []


async def test_without_a_caller_s_context_a_kept_decision_begins_a_trace(world: World, receiver: Receiver) -> None:
    running = await ready(world, receiver.url, engines=1)
    await running.ask(headers={"traceparent": "00-nonsense"})
    await ended(world, running)
    (root,) = receiver.named("chat mock")
    assert root.parent == ""
    assert world.engines[0].seen[0]["headers"]["traceparent"].startswith(f"00-{root.trace_id}-")


@pytest.mark.parametrize("may", [True, False])
async def test_a_sampled_trace_has_its_decision_kept_where_the_client_may_ask(
    world: World, receiver: Receiver, may: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        router_worlds, "pool_scheduler_factory", lambda name, seed, rate, most: pool_scheduler_factory(name, seed, 0.0, most)
    )
    running = await ready(world, receiver.url, engines=1, explains_without_key=may)
    answer = await running.ask(headers={"traceparent": SAMPLED})
    await running.ask()
    assert "x-fairlead-decision-kept" not in answer.headers
    assert [one.kept for one in await ended(world, running)] == (["asked"] if may else [])
    assert len(receiver.named("chat mock")) == may
    passed_on = world.engines[0].seen[0]["headers"]["traceparent"]
    assert passed_on.startswith(f"00-{TRACE}-")
    assert (passed_on == SAMPLED) is not may, "no engine's span gets a parent that nobody exports"
    assert "traceparent" not in world.engines[0].seen[1]["headers"]


async def test_without_an_endpoint_nothing_is_made_and_the_header_goes_on(world: World) -> None:
    running = await ready(world, None, engines=1)
    await running.ask(headers={"traceparent": SAMPLED})
    await ended(world, running)
    assert running.router.spans is None
    assert world.engines[0].seen[0]["headers"]["traceparent"] == SAMPLED


async def test_a_collector_that_takes_nothing_costs_spans_and_one_line_and_no_request(
    world: World, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.status = 400
    caplog.set_level(logging.INFO, exporting.__name__)
    running = await ready(world, receiver.url, engines=1)
    spans = running.router.spans
    assert spans is not None
    for number in range(3):
        assert (await running.ask()).status_code == 200
        await until(lambda sent=number: receiver.requests > sent)  # type: ignore[misc]
    await until(lambda: spans.counts[exporting.FAILED] >= 9)
    receiver.status = 200
    assert (await running.ask()).status_code == 200
    await until(lambda: spans.counts[exporting.SENT] > 0)
    page = (await running.admin.get("/metrics")).text
    assert f'fairlead_router_spans_total{{fate="failed"}} {spans.counts[exporting.FAILED]}.0' in page
    said = [record.getMessage() for record in caplog.records if record.name == exporting.__name__]
    assert said == ["traces cannot be sent; this is logged again only after a success", "traces are sent again"]
    await ended(world, running)
