"""Which decisions are kept, and with which weight: for all ends of a request, all rates, and above the write limit."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.decisions import DecisionReason, DecisionRecord, KeptFor, RequestOutcome
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.requests import TraceContext
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.scheduling import kept_decisions
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.tables import EarlyRejectionFacts, RoutingTable
from fairlead_testing.builders.routing import dispatches, having_seen, refusals, request, table

ENDS = (
    "served",
    "late",
    "slow",
    "refused",
    "exhausted",
    "failed",
    "retried",
    "left",
    "left late",
    "declined",
    "moved",
    "asked",
    "watched",
    "left held",
)
KEPT = {
    "late": KeptFor.LATE,
    "slow": KeptFor.LATE,
    "refused": KeptFor.REFUSED,
    "exhausted": KeptFor.REFUSED,
    "failed": KeptFor.FAILED,
    "retried": KeptFor.RETRIED,
    "left late": KeptFor.LATE,
    "moved": KeptFor.MOVED,
    "asked": KeptFor.ASKED,
    "watched": KeptFor.SESSION,
}
OUTCOMES = {
    "refused": RequestOutcome.REFUSED,
    "exhausted": RequestOutcome.REFUSED,
    "failed": RequestOutcome.FAILED,
    "left": RequestOutcome.CANCELLED,
    "left held": RequestOutcome.CANCELLED,
    "left late": RequestOutcome.CANCELLED,
    "declined": RequestOutcome.DECLINED,
}


def pool(instances: int = 3, rejection: EarlyRejectionFacts | None = None) -> RoutingTable:
    return table(instances, policy="least-loaded", window=0, rejection=rejection)


def scheduler(rate: float, seed: int = 1) -> PoolScheduler:
    made = PoolScheduler(pool(), "router-0", seed, sample_rate=rate)
    made.keep_sessions({"watched": 1e9})
    return made


def run(one: PoolScheduler, name: str, how: str, now: float) -> str:
    """Run a request that begins at `now` and ends in this way. Return its decision's id as its client gets it."""
    asked = replace(request(name, at=now, session="watched" if how == "watched" else None), explain=how == "asked")
    if how == "refused":
        one.update_table(replace(pool(0), version=one.table.version + 1), now)
        one.submit(asked, now)
        (refusal,) = refusals(one.give_up(name, now))
        one.update_table(replace(pool(), version=one.table.version + 1), now)
        return refusal.decision_id
    if how == "left held":
        one.update_table(replace(pool(0), version=one.table.version + 1), now)
        one.submit(asked, now)
        one.cancel(name, now + 0.1)
        one.update_table(replace(pool(), version=one.table.version + 1), now)
        return ""
    (sent,) = dispatches(one.submit(asked, now))
    if how in ("retried", "exhausted"):
        last: Dispatch | Refusal = sent
        for _ in range(1 if how == "retried" else 3):
            assert isinstance(last, Dispatch)
            one.attempt_failed(name, last.instance, "lost", now + 0.1)
            last = one.retry(name, now + 0.1, last.instance)
        if isinstance(last, Refusal):
            return last.decision_id
    if how == "declined":
        one.decline(name, now + 0.1)
    elif how == "moved":
        one.retry(name, now + 0.1, sent.instance)  # nobody says that it failed: a re-route
        one.first_token(name, now + 0.2)
        one.complete(name, now + 0.25, 2, None)
    elif how in ("left", "left late"):
        one.cancel(name, now + (0.1 if how == "left" else 6.0))
    else:
        one.first_token(name, now + (5.5 if how == "late" else 0.2))
        if how == "failed":
            one.attempt_failed(name, sent.instance, "stalled", now + 0.3)
            one.fail(name, now + 0.3)
        else:
            one.complete(name, now + (9.0 if how in ("late", "slow") else 0.3), 10, None)
    return sent.decision_id


@given(
    ends=st.lists(st.sampled_from(ENDS), min_size=1, max_size=60),
    rate=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    takes=st.sets(st.integers(0, 59)),
    seed=st.integers(0, 99),
)
def test_what_is_always_kept_is_kept_and_the_weights_are_the_requests(ends: list[str], rate: float, takes: set[int], seed: int) -> None:
    one = scheduler(rate, seed)
    told: dict[str, str] = {}
    kept: list[DecisionRecord] = []
    for number, how in enumerate(ends):
        told[f"r{number}"] = run(one, f"r{number}", how, 10.0 * number)
        if number in takes:
            kept += one.take_records(10.0 * number + 9.0).decisions
    kept += one.take_records(10.0 * len(ends), final=True).decisions
    rows = {row.request: row for row in kept}
    assert len(rows) == len(kept), "a request has one decision"
    for number, how in enumerate(ends):
        row = rows.get(f"r{number}")
        if how in KEPT or rate == 1.0:
            assert row is not None, how
        if row is not None:
            assert told[row.request] in (row.id, "")
            assert (row.kept, row.outcome) == (KEPT.get(how, KeptFor.SAMPLE), OUTCOMES.get(how, RequestOutcome.SERVED))
            assert bool(row.attempts) == (how in ("retried", "exhausted", "failed"))
    counted = Counter(KEPT.get(how, KeptFor.SAMPLE) for how in ends)
    for why in KeptFor:
        weights = [1 / row.sample_rate for row in kept if row.kept is why]
        if why is not KeptFor.SAMPLE or rate == 1.0:
            assert sum(weights) == pytest.approx(counted[why])
            assert all(row.sample_rate == 1.0 for row in kept if row.kept is why)
        else:
            assert sum(weights) <= counted[why] + 1e-9
    assert not one.discrepancies()


@given(seed=st.integers(0, 10_000), gap=st.integers(1, 40))
def test_the_weights_of_the_sample_add_up_but_for_the_requests_since_its_last_row(seed: int, gap: int) -> None:
    one = scheduler(0.2, seed)
    weights, since = 0.0, 0
    for number in range(300):
        run(one, f"r{number}", "served", number / 1.0)
        since += 1
        if number % gap == 0:
            taken = one.take_records(number + 0.9).decisions
            weights += sum(1 / row.sample_rate for row in taken)
            since = 0 if taken else since
    assert weights + since == pytest.approx(300)


def test_more_that_are_late_than_may_be_kept_are_stood_for_by_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_decisions, "KEPT_PER_MINUTE", 60.0)
    one = scheduler(0.0)
    kept: list[DecisionRecord] = []
    unkept = 0
    for number in range(300):
        run(one, f"r{number}", "late", number * 0.1)
        if number % 20 == 19:
            records = one.take_records(number * 0.1)
            kept += records.decisions
            unkept += records.unkept_decisions
    assert 60 <= len(kept) <= 60 + 40 + 1
    assert len(kept) + unkept == 300
    assert sum(1 / row.sample_rate for row in kept) == pytest.approx(300, abs=20)


def test_a_decision_that_was_asked_for_is_kept_though_more_are_late_than_may_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_decisions, "KEPT_PER_MINUTE", 1.0)
    monkeypatch.setattr(kept_decisions, "ASKED_PER_MINUTE", 2.0)
    one = scheduler(0.0)
    for number in range(5):
        run(one, f"late{number}", "late", 0.0)
    (first,) = dispatches(one.submit(replace(request("a"), explain=True), 0.0))
    (second,) = dispatches(one.submit(replace(request("b"), explain=True), 0.0))
    (third,) = dispatches(one.submit(replace(request("c"), explain=True), 0.0))
    assert (first.kept, second.kept, third.kept) == (True, True, False), "the answer says what will be"
    for name in "abc":
        one.first_token(name, 0.1)
        one.complete(name, 0.2, 2, None)
    rows = [row for row in one.take_records(1.0).decisions if row.kept is KeptFor.ASKED]
    assert [row.request for row in rows] == ["a", "b"]
    assert all(row.weighing.candidates for row in rows)


def test_a_session_is_watched_until_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    one = scheduler(0.0)
    one.keep_sessions({"s": 100.0})
    for number, at in enumerate((1.0, 99.0, 100.0)):
        one.submit(request(f"r{number}", session="s", at=at), at)
        one.first_token(f"r{number}", at + 0.1)
        one.complete(f"r{number}", at + 0.2, 2, None)
    assert [row.request for row in one.take_records(200.0).decisions if row.kept is KeptFor.SESSION] == ["r0", "r1"]


def test_a_refused_request_says_where_it_would_have_gone_and_what_was_compared() -> None:
    tight = pool(1, EarlyRejectionFacts(mode="Load"))
    one = having_seen(PoolScheduler(tight, "router-0", 1, sample_rate=0.0))
    assert dispatches(one.submit(replace(request("first", 40_000), client_id="theirs"), 0.0))
    (refusal,) = refusals(one.submit(replace(request("second", 40_000), client_id="theirs"), 0.1))
    (row,) = one.take_records(1.0, final=True).decisions
    assert (row.id, row.client_request, row.kept) == (refusal.decision_id, "theirs", KeptFor.REFUSED)
    assert (row.rejection, row.outcome) == (RejectionReason.PREDICTED_TTFT, RequestOutcome.REFUSED)
    assert (row.chosen, [one.instance for one in row.weighing.candidates]) == ("i00", ["i00"])


def test_a_request_that_nobody_could_take_says_so() -> None:
    one = PoolScheduler(pool(0), "router-0", 1, sample_rate=0.0)
    one.submit(request("r"), 0.0)
    (refusal,) = refusals(one.give_up("r", 0.5))
    (row,) = one.take_records(1.0, final=True).decisions
    assert (row.id, row.chosen, row.reason, row.weighing.rule) == (refusal.decision_id, "", DecisionReason.NONE_CHOSEN, "nobody")


def test_beyond_what_is_noted_a_second_a_surprise_is_kept_without_its_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_decisions, "WEIGHED_PER_MINUTE", 3.0)
    one = scheduler(0.0)
    for number in range(4):
        run(one, f"r{number}", "served", 0.0)
    run(one, "surprise", "failed", 0.0)
    run(one, "next", "failed", 0.0)
    rows = {row.request: row for row in one.take_records(1.0).decisions}
    assert (rows["surprise"].weighing.rule, rows["surprise"].chosen[:1]) == ("not-weighed", "i")
    assert rows["next"].weighing.candidates, "after one that failed, others are at risk"


def test_a_process_without_a_use_for_decisions_pays_for_none() -> None:
    one = PoolScheduler(pool(), "router-0", 1, sample_rate=1.0, settings=SchedulerSettings(decisions=False))
    for how in ("late", "failed", "served"):
        run(one, how, how, 0.0)
    assert one.take_records(1.0, final=True).decisions == ()


TRACE = TraceContext(trace_id="4b" * 16, span_id="0a" * 8)


@pytest.mark.parametrize("rate", [0.0, 1.0])
@pytest.mark.parametrize("asks", [False, True])
def test_a_trace_is_shown_exactly_with_its_decision_and_its_engine_hears_of_it_only_if_that_is_sure(rate: float, asks: bool) -> None:
    one = scheduler(rate)
    for name, how in (("well", "served"), ("ill", "failed")):
        (sent,) = dispatches(one.submit(replace(request(name), trace=replace(TRACE, asks=asks)), 0.0))
        assert sent.traced is (asks or rate == 1.0)
        one.first_token(name, 0.5)
        if how == "failed":
            one.fail(name, 2.0)
        else:
            one.complete(name, 0.6, 10, None)
    run(one, "untraced", "failed", 3.0)
    records = one.take_records(4.0)
    assert {row.id for row in records.decisions if row.request != "untraced"} == {row.decision for row in records.traced}
    assert {(row.request.id, row.ended_at, row.first_token_at) for row in records.traced} >= {("ill", 2.0, 0.5)}
    assert [row.output_tokens for row in records.traced if row.request.id == "well"] == ([10] if asks or rate else [])
    assert one.take_records(5.0).traced == ()
    assert {row.request: row.trace for row in records.decisions} == {
        row.request: None if row.request == "untraced" else TRACE.trace_id for row in records.decisions
    }


def test_a_request_without_a_trace_is_never_traced() -> None:
    one = scheduler(1.0)
    (sent,) = dispatches(one.submit(request("r"), 0.0))
    assert not sent.traced
    one.first_token("r", 0.5)
    one.complete("r", 1.0, 10, None)
    assert one.take_records(2.0).traced == ()
