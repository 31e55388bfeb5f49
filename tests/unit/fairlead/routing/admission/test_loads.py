from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.rejections import RejectionReason
from fairlead.routing.admission.gates import build_gate
from fairlead.routing.admission.loads import best_ttft_seconds
from fairlead.routing.admission.refusals import (
    nobody_serves,
    none_within,
    queue_full,
    shutting_down,
    upstream_failed,
    waited_too_long,
    whole_seconds,
)
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Refusal
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import EarlyRejectionFacts
from fairlead_testing.builders.routing import POOL, ScriptedView, dispatches, entry, having_seen, refusals, request, table
from fairlead_testing.examples import examples


def view_of(pending: list[int], mode: str = "Load", headroom: float = 1.0, hits: dict[tuple[str, str], int] | None = None) -> ScriptedView:
    loads = {f"i{number}": InstanceLoad(entry=entry(f"i{number}"), pending_prefill_tokens=tokens) for number, tokens in enumerate(pending)}
    rejection = EarlyRejectionFacts(mode=mode, headroom=headroom)
    return ScriptedView(table([one.entry for one in loads.values()], rejection=rejection), loads, hits)


def early_rejection(asked: RoutingRequest, ttft_seconds: float, view: ScriptedView) -> Refusal | None:
    """Return the answer of the admission gate of the view's table."""
    return build_gate(view.table.early_rejection.mode).at_arrival(asked, ttft_seconds, view, 0.0)


def test_a_request_every_instance_would_serve_too_late_is_refused_with_the_time_until_there_is_headroom() -> None:
    refusal = early_rejection(request("r", 6250), 9.0, view_of([43_750, 50_000]))
    assert refusal is not None
    assert (refusal.status, refusal.reason, refusal.retry_after_seconds) == (429, RejectionReason.PREDICTED_TTFT, 3.0)
    assert refusal.predicted_ttft_seconds == 8.0
    assert refusal.message == "predicted time to first token 8.0 s exceeds 5.0 s on every instance of pool default/chat"


def test_one_instance_in_time_admits_wherever_the_request_goes() -> None:
    assert early_rejection(request("r", 6250), 9.0, view_of([43_750, 25_000])) is None


def test_cached_tokens_count_for_admission() -> None:
    busy = view_of([31_000], hits={("r", "i0"): 6_100})
    assert early_rejection(request("r", 6250), 4.984, busy) is None
    assert best_ttft_seconds(request("r", 6250), busy) == 4.984


def test_headroom_scales_the_limit() -> None:
    assert early_rejection(request("r", 6250), 8.0, view_of([43_750], headroom=1.6)) is None
    assert early_rejection(request("r", 6250), 8.0, view_of([43_750], headroom=1.5)) is not None


@pytest.mark.parametrize("mode", ["Load", "Predicted", "AfterPrefill"])
def test_late_first_tokens_are_refused_in_every_mode_while_all_decode(mode: str) -> None:
    busy = view_of([43_750, 50_000], mode)
    for load in busy.loads.values():
        load.decoding = 1
    refusal = early_rejection(request("r", 6250), 9.0, busy)
    assert refusal is not None
    assert refusal.reason is RejectionReason.PREDICTED_TTFT


def test_mode_off_refuses_nothing() -> None:
    assert early_rejection(request("r", 6250), 99.0, view_of([900_000], mode="Disabled")) is None


def test_without_candidates_nothing_can_be_predicted() -> None:
    assert best_ttft_seconds(request("r"), view_of([])) == inf


@pytest.mark.parametrize(("seconds", "told"), [(-3.0, 1.0), (0.0, 1.0), (0.2, 1.0), (1.0, 1.0), (1.2, 2.0), (1e9, 600.0), (inf, 600.0)])
def test_retry_after_is_whole_seconds_from_1_to_600(seconds: float, told: float) -> None:
    assert whole_seconds(seconds) == told


def test_each_refusal_says_what_happened() -> None:
    assert queue_full(request("r"), POOL, 10, 3.3).message == (
        "10 requests already wait for each instance of pool default/chat that could take this one"
    )
    assert waited_too_long(request("r"), POOL, 60.0, 2.0).status == 429
    failed = upstream_failed(request("r"), POOL, ("i0", "i1"))
    assert (failed.message, failed.status) == ("no instance of pool default/chat answered; tried i0, i1", 502)
    assert upstream_failed(request("r"), POOL, ()).message.endswith("; tried none")
    for refusal in (failed, none_within(request("r"), POOL), shutting_down(request("r"), POOL)):
        assert refusal.retry_after_seconds == 1.0
    assert nobody_serves(request("r"), POOL, 5.0, 5.0).message == "no instance of pool default/chat accepts requests (waited 5.0 s for one)"


@examples(60)
@given(st.lists(st.integers(0, 90_000), min_size=1, max_size=6), st.integers(1, 40_000), st.floats(0.1, 3.0))
def test_a_refusal_means_that_no_candidate_meets_the_limit_and_an_admission_that_one_does(
    pending: list[int], tokens: int, headroom: float
) -> None:
    refusal = early_rejection(request("r", tokens), inf, view_of(pending, headroom=headroom))
    assert (refusal is None) == (min(pending) + tokens <= headroom * 5.0 * 6250)
    if refusal is not None:
        assert refusal.retry_after_seconds >= 1


def test_the_scheduler_refuses_early_and_counts_nothing_for_it() -> None:
    scheduler = having_seen(PoolScheduler(table(2, policy="dualmap", rejection=EarlyRejectionFacts(mode="Load")), "router-0", 1))
    for number in range(12):
        scheduler.submit(request(f"r{number}", 6250, blocks=(number,)), 0.0)
    pending = sum(load.pending_prefill_tokens for load in scheduler.loads())
    assert pending == 10 * 6250
    (record,) = scheduler.take_records(1.0).rejections
    assert (record.count, record.reason, record.predicted_ttft_seconds) == (2, RejectionReason.PREDICTED_TTFT, 6.0)


def test_a_full_queue_sends_the_request_to_the_next_and_refuses_when_all_are_full() -> None:
    scheduler = PoolScheduler(table(2, parameters={"queue_limit": 1}), "router-0", 0)
    outcomes = [outcome for number in range(5) for outcome in scheduler.submit(request(f"r{number}"), 0.0)]
    assert len(dispatches(outcomes)) == 2
    (refusal,) = refusals(outcomes)
    assert (refusal.request.id, refusal.reason, refusal.status) == ("r4", RejectionReason.QUEUE_FULL, 429)


def test_a_request_that_waits_longer_than_allowed_is_refused() -> None:
    scheduler = PoolScheduler(table(1, parameters={"queue_timeout_seconds": 2}), "router-0", 0)
    scheduler.submit(request("r1", 12_500), 0.0)
    scheduler.submit(request("r2"), 0.5)
    assert scheduler.tick(2.4) == ()
    (refusal,) = refusals(scheduler.tick(2.5))
    assert (refusal.request.id, refusal.reason, refusal.retry_after_seconds) == ("r2", RejectionReason.QUEUE_TIMEOUT, 3.0)
    assert scheduler.waiting() == 0


def test_only_so_many_requests_are_held_while_nobody_serves() -> None:
    scheduler = PoolScheduler(table(0), "router-0", 0)
    outcomes = [outcome for number in range(4097) for outcome in scheduler.submit(request(f"r{number}"), 0.0)]
    (refusal,) = refusals(outcomes)
    assert (refusal.status, refusal.reason) == (503, RejectionReason.NO_INSTANCES)
