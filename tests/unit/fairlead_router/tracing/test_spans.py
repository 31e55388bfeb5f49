"""Spans of stored records: each stage appears once, and the times fit each other."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.bindings import BindingReason
from fairlead.reports.decisions import (
    Attempt,
    CandidateScore,
    Continuation,
    DecisionReason,
    DecisionRecord,
    KeptFor,
    RequestOutcome,
    ShadowChoice,
    Weighing,
)
from fairlead.reports.moves import MigrationOutcome, MigrationRecord, MoveOutcome
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.requests import RoutingRequest, TraceContext
from fairlead.routing.contracts.schedulers import SchedulerRecords
from fairlead.routing.contracts.traces import TracedRequest
from fairlead.tables import PoolKey
from fairlead_router.tracing.spans import Span, spans_of
from fairlead_router.tracing.tracer import MOST_MOVES, Tracer
from fairlead_testing.examples import examples
from fairlead_testing.running.collector import ReceivedSpan, decision_of

POOL = PoolKey(namespace="a", name="chat")
CONTEXT = TraceContext(trace_id="4b" * 16, span_id="0a" * 8, operation="chat", model="llama")
NAMES = st.text(st.characters(codec="ascii", min_codepoint=48, max_codepoint=122), min_size=1, max_size=8)
SECONDS = st.floats(0, 1e6)
TERMS = st.dictionaries(NAMES, st.floats(allow_nan=False), max_size=3)
RANKS = st.none() | st.integers(0, 7)

CANDIDATES = st.builds(
    CandidateScore,
    instance=NAMES,
    hit_tokens=st.integers(0, 10**6),
    miss_tokens=st.integers(0, 10**6),
    pending_tokens=st.integers(0, 10**6),
    predicted_ttft_seconds=SECONDS,
    total=st.none() | SECONDS,
    terms=TERMS,
)
ATTEMPTS = st.builds(Attempt, instance=NAMES, failure=NAMES, after_seconds=SECONDS, rank=RANKS)
CONTINUATIONS = st.builds(
    Continuation,
    source=NAMES,
    target=NAMES,
    why=NAMES,
    after_seconds=SECONDS,
    carried_tokens=st.integers(0, 10**6),
    computed_tokens=st.integers(0, 10**6),
    gap_seconds=st.none() | SECONDS,
    unlike=st.none() | NAMES,
    source_rank=RANKS,
    target_rank=RANKS,
)
SHADOWS = st.builds(
    ShadowChoice,
    policy=NAMES,
    target=st.none() | NAMES,
    alike=st.booleans(),
    predicted_ttft_seconds=SECONDS,
    hit_tokens=st.integers(0, 10**6),
    chosen_ttft_seconds=SECONDS,
    chosen_hit_tokens=st.integers(0, 10**6),
)
RECORDS = st.builds(
    DecisionRecord,
    id=NAMES,
    pool=st.just(POOL),
    request=NAMES,
    session=st.none() | NAMES,
    at=SECONDS,
    policy=NAMES,
    table_version=st.integers(0, 10**6),
    chosen=st.just("") | NAMES,
    runner_up=st.none() | NAMES,
    reason=st.sampled_from(DecisionReason),
    prompt_tokens=st.integers(0, 10**6),
    queued_seconds=st.none() | SECONDS,
    held_seconds=st.none() | SECONDS,
    ttft_seconds=st.none() | SECONDS,
    sample_rate=st.floats(0.001, 1),
    served_by=st.none() | NAMES,
    decode=st.none() | NAMES,
    priority_class=NAMES,
    named=st.none() | NAMES,
    chosen_rank=RANKS,
    runner_up_rank=RANKS,
    served_by_rank=RANKS,
    decode_rank=RANKS,
    kept=st.sampled_from(KeptFor),
    outcome=st.none() | st.sampled_from(RequestOutcome),
    rejection=st.none() | st.sampled_from(RejectionReason),
    tpot_seconds=st.none() | SECONDS,
    ttft_target_seconds=st.none() | SECONDS,
    tpot_target_seconds=st.none() | SECONDS,
    client_request=st.none() | NAMES,
    attempts=st.lists(ATTEMPTS, max_size=3).map(tuple),
    continuations=st.lists(CONTINUATIONS, max_size=3).map(tuple),
    trace=st.none() | NAMES,
    shadows=st.lists(SHADOWS, max_size=2).map(tuple),
    weighing=st.builds(
        Weighing,
        rule=NAMES,
        candidates=st.lists(CANDIDATES, max_size=2).map(tuple),
        considered=st.integers(0, 99),
        passed_over=st.none() | NAMES,
        limits=TERMS,
    ),
)
TRACED = st.builds(
    lambda arrived, lasted, first, prefilled: TracedRequest(
        decision="d",
        request=RoutingRequest(id="r", arrived_at=arrived, prompt_tokens=9, blocks=(), first_bytes_hash=0, trace=CONTEXT),
        ended_at=arrived + lasted,
        output_tokens=3,
        first_token_at=None if first is None else arrived + first,
        prefilled_at=None if prefilled is None else arrived + prefilled,
    ),
    SECONDS,
    SECONDS,
    st.none() | SECONDS,
    st.none() | SECONDS,
)


def received(span: Span) -> ReceivedSpan:
    events = [(event.name, dict(event.attributes)) for event in span.events]
    return ReceivedSpan(
        span.name, span.kind, span.trace_id, span.span_id, span.parent or "", "", 0, 0, False, dict(span.attributes), events, {}
    )


@examples(300)
@given(record=RECORDS, traced=TRACED)
def test_the_span_of_a_decision_tells_the_whole_record_and_nothing_else(record: DecisionRecord, traced: TracedRequest) -> None:
    (told,) = [span for span in spans_of(traced, record, (), "router-0") if span.name == "fairlead.decision"]
    assert decision_of(received(told)) == record


@examples(300)
@given(record=RECORDS, traced=TRACED)
def test_spans_have_ids_of_their_own_one_root_and_no_end_before_their_start(record: DecisionRecord, traced: TracedRequest) -> None:
    root, *others = spans_of(traced, record, (), "router-0")
    assert len({span.span_id for span in (root, *others)}) == 1 + len(others)
    assert {span.parent for span in others} == {root.span_id}
    assert {span.trace_id for span in (root, *others)} == {CONTEXT.trace_id}
    assert all(span.start <= span.end for span in (root, *others))


RECORD = DecisionRecord(
    id="d",
    pool=POOL,
    request="r",
    session="s",
    at=100.0,
    policy="fairlead",
    table_version=1,
    chosen="i0",
    runner_up="i1",
    reason=DecisionReason.SESSION_BOUND,
    prompt_tokens=9,
    queued_seconds=1.0,
    ttft_seconds=3.0,
    served_by="i0",
    outcome=RequestOutcome.SERVED,
    weighing=Weighing(rule="session", candidates=(), considered=2),
)
SERVED = TracedRequest(
    decision="d",
    request=RoutingRequest(id="r", arrived_at=100.0, prompt_tokens=9, blocks=(), first_bytes_hash=0, trace=CONTEXT),
    ended_at=110.0,
    output_tokens=5,
    first_token_at=103.0,
)


def picture(traced: TracedRequest = SERVED, **changes: Any) -> list[tuple[str, str, float, float, str]]:
    """Return the name, target, beginning and end since the arrival, and error of each span."""
    spans = spans_of(traced, replace(RECORD, **changes), (), "router-0")
    return [
        (
            span.name.removeprefix("fairlead."),
            str(span.attributes.get("fairlead.target", "")),
            span.start - 100,
            span.end - 100,
            span.error or "",
        )
        for span in spans
    ]


REQUEST, QUEUE, DECISION = ("chat llama", "", 0, 10, ""), ("queue", "", 0, 1, ""), ("decision", "", 0, 0, "")


def test_a_served_request_is_queued_prefilled_and_decoded() -> None:
    assert picture() == [REQUEST, QUEUE, DECISION, ("prefill", "i0", 1, 3, ""), ("decode", "i0", 3, 10, "")]


def test_a_retry_ends_where_the_next_instance_begins() -> None:
    attempts = (
        Attempt(instance="i0", failure="lost", after_seconds=1.5),
        Attempt(instance="i1", failure="timeout", after_seconds=2.0, rank=3),
    )
    assert picture(attempts=attempts, served_by="i2")[3:] == [
        ("retry", "i0", 1, 1.5, "lost"),
        ("retry", "i1#3", 1.5, 2, "timeout"),
        ("prefill", "i2", 2, 3, ""),
        ("decode", "i2", 3, 10, ""),
    ]


def test_a_divided_request_is_decoded_elsewhere_once_its_prompt_is_computed() -> None:
    traced = replace(SERVED, prefilled_at=102.0)
    assert picture(traced, decode="d0")[3:] == [("prefill", "i0", 1, 2, ""), ("decode", "d0", 2, 10, "")]


def test_an_answer_that_goes_on_elsewhere_shows_the_gap_as_a_move() -> None:
    moved = Continuation(source="i0", target="i1", why="drained", after_seconds=5.0, carried_tokens=4, computed_tokens=13, gap_seconds=2.0)
    assert picture(continuations=(moved,))[4:] == [
        ("decode", "i0", 3, 5, "drained"),
        ("move", "i1", 5, 7, ""),
        ("decode", "i1", 7, 10, ""),
    ]
    assert picture(continuations=(replace(moved, gap_seconds=None),), outcome=RequestOutcome.FAILED)[4:] == [
        ("decode", "i0", 3, 5, "drained"),
        ("move", "i1", 5, 10, ""),
    ]


def test_an_answer_that_is_not_streamed_is_one_span_as_its_first_token_is_not_seen() -> None:
    assert picture(replace(SERVED, first_token_at=None), ttft_seconds=None)[3:] == [("answer", "i0", 1, 10, "")]


def test_a_refused_request_waited_to_its_end_and_names_the_reason() -> None:
    found = picture(
        replace(SERVED, first_token_at=None),
        queued_seconds=None,
        ttft_seconds=None,
        served_by=None,
        outcome=RequestOutcome.REFUSED,
        rejection=RejectionReason.QUEUE_FULL,
    )
    assert found == [("chat llama", "", 0, 10, "rejected-queue-full"), ("queue", "", 0, 10, ""), DECISION]


MOVE = MigrationRecord(
    id="m",
    pool=POOL,
    session="s",
    request="r",
    source="i1",
    target="i0",
    trigger=BindingReason.HOTSPOT,
    at=101.0,
    predicted_source_ttft_seconds=5.0,
    predicted_target_ttft_seconds=1.0,
    benefit_seconds=4.0,
)
NOTHING = SchedulerRecords(bindings=(), migrations=(), migration_outcomes=(), decisions=(), rejections=(), loads=())


def test_a_move_is_shown_with_the_outcome_that_came_later() -> None:
    traces: list[tuple[Span, ...]] = []
    tracer = Tracer("router-0", traces.append)
    tracer.take(replace(NOTHING, migrations=(MOVE, replace(MOVE, id="other", request="another"))))
    outcome = MigrationOutcome(id="m", pool=POOL, actual_ttft_seconds=3.0, outcome=MoveOutcome.COMPLETED)
    tracer.take(replace(NOTHING, migration_outcomes=(outcome,)))
    tracer.take(replace(NOTHING, decisions=(RECORD,), traced=(SERVED,)))
    (trace,) = traces
    (move,) = [span for span in trace if span.name == "fairlead.move"]
    assert move.attributes["fairlead.move.outcome"] == "completed"
    assert move.attributes["fairlead.move.actual_ttft_seconds"] == 3.0
    assert move.attributes["fairlead.move.benefit_seconds"] == 4.0


def test_moves_of_requests_that_are_not_traced_do_not_pile_up() -> None:
    traces: list[tuple[Span, ...]] = []
    tracer = Tracer("router-0", traces.append)
    tracer.take(replace(NOTHING, migrations=(MOVE, *(replace(MOVE, id=f"m{n}", request=f"r{n}") for n in range(MOST_MOVES)))))
    tracer.take(replace(NOTHING, decisions=(RECORD,), traced=(SERVED,)))
    assert not [span for span in traces[0] if span.name == "fairlead.move"], "the oldest made way"


def test_a_trace_that_cannot_be_made_costs_no_report(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: tuple[Span, ...]) -> None:
        raise ValueError("bug")

    Tracer("router-0", broken).take(replace(NOTHING, decisions=(RECORD,), traced=(SERVED,)))
    assert [record.getMessage() for record in caplog.records] == ["traces could not be made"]
