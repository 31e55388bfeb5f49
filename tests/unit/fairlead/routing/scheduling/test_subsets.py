"""Requests that only some instances may serve."""

from dataclasses import replace

import pytest

from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import EarlyRejectionFacts
from fairlead_testing.builders.routing import entries, having_seen, table

WITHIN = ("i02", "i04")


def scheduler(policy: str, *, instances: int = 5, window: int = 1) -> PoolScheduler:
    return PoolScheduler(table(entries(instances), policy=policy, window=window), "router-0", 1, sample_rate=1.0)


def request(name: str, within: tuple[str, ...] | None = WITHIN, session: str | None = None) -> RoutingRequest:
    number = sum(name.encode())
    return RoutingRequest(
        id=name, arrived_at=0.0, prompt_tokens=1024, blocks=(number, number + 1), first_bytes_hash=number, session=session, within=within
    )


def only(outcomes: tuple[Dispatch | Refusal, ...]) -> Dispatch | Refusal:
    (outcome,) = outcomes
    return outcome


@pytest.mark.parametrize("policy", [name for name in BUILT_IN.names if name != "static-pd"])
def test_no_policy_chooses_or_falls_back_to_an_instance_outside(policy: str) -> None:
    pool = scheduler(policy, window=0)
    only(pool.submit(request("home", None, session="s"), 0.0))
    for number in range(12):
        dispatch = only(pool.submit(request(f"r{number}", session="s" if number % 2 else f"s{number}"), 0.1))
        assert isinstance(dispatch, Dispatch)
        assert dispatch.instance in WITHIN
        assert set(dispatch.fallbacks) <= set(WITHIN)
    assert not pool.discrepancies()


def test_a_choice_outside_is_overruled_and_the_record_says_so() -> None:
    pool = scheduler("sticky", window=0)
    home = only(pool.submit(request("home", ("i00",), session="s"), 0.0))
    assert isinstance(home, Dispatch)
    dispatch = only(pool.submit(request("r", session="s"), 1.0))
    assert isinstance(dispatch, Dispatch)
    assert dispatch.instance in WITHIN
    pool.complete("r", 2.0, 1, None)
    records = {one.id: one for one in pool.take_records(3.0, final=True).decisions}
    assert records[dispatch.decision_id].weighing.rule == "outside-subset"


def test_a_subset_of_which_nobody_accepts_is_refused_at_once() -> None:
    pool = scheduler("round-robin")
    for within in ((), ("gone",)):
        refusal = only(pool.submit(request("r", within), 0.0))
        assert isinstance(refusal, Refusal)
        assert (refusal.status, refusal.reason) == (503, RejectionReason.NO_INSTANCES)
    assert pool.waiting() == 0


def test_a_subset_that_is_too_busy_refuses_whatever_the_others_could_take() -> None:
    rejection = EarlyRejectionFacts(mode="Load", headroom=1.0)
    pool = having_seen(PoolScheduler(table(entries(3), policy="least-loaded", speed=300.0, rejection=rejection), "router-0", 1))
    assert isinstance(only(pool.submit(request("first", ("i00",)), 0.0)), Dispatch)
    refusal = only(pool.submit(request("second", ("i00",)), 0.1))
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.reason) == (429, RejectionReason.PREDICTED_TTFT)
    assert "of pool default/chat that may serve it" in refusal.message
    assert isinstance(only(pool.submit(request("third", ("i00", "i01")), 0.2)), Dispatch)


def test_a_forecast_spreads_the_decodes_of_the_pool_over_all_of_it_and_not_over_a_subset() -> None:
    pool = PoolScheduler(
        table(
            entries(4),
            policy="least-loaded",
            window=0,
            rejection=EarlyRejectionFacts(mode="Predicted"),
            decode_base_seconds=0.01,
            decode_seconds_per_request=0.03,
        ),
        "router-0",
        1,
    )
    for number in range(4):  # one each: 0.04 s a token, and 0.13 s if one instance had all
        assert isinstance(only(pool.submit(request(f"r{number}", None), 0.0)), Dispatch)
        pool.first_token(f"r{number}", 0.1)
    assert isinstance(only(pool.submit(request("part", ("i00",)), 0.2)), Dispatch)


def test_queued_requests_are_refused_when_the_last_member_leaves_and_never_placed_outside() -> None:
    pool = scheduler("least-loaded", instances=3)
    only(pool.submit(request("first", ("i02",)), 0.0))
    assert pool.submit(request("second", ("i02",)), 0.0) == ()
    left = replace(table(entries(2), policy="least-loaded"), version=2)
    refusal = only(pool.update_table(left, 1.0))
    assert isinstance(refusal, Refusal)
    assert refusal.request.id == "second"


def test_a_retry_stays_within() -> None:
    pool = scheduler("round-robin", window=0)
    dispatch = only(pool.submit(request("r"), 0.0))
    assert isinstance(dispatch, Dispatch)
    again = pool.retry("r", 0.1, dispatch.instance)
    assert isinstance(again, Dispatch)
    assert {dispatch.instance, again.instance} == set(WITHIN)
    assert isinstance(pool.retry("r", 0.2, again.instance), Refusal)


def test_an_instance_that_a_proxy_chose_itself_is_no_faster_for_that_nor_did_the_request_wait_longer() -> None:
    pool = scheduler("least-loaded", window=0)
    dispatch = only(pool.submit(request("r", None), 0.0))
    assert isinstance(dispatch, Dispatch)
    served = next(name for name in ("i03", "i04") if name != dispatch.instance)
    pool.retry("r", 3.0, dispatch.instance, to=served)
    assert not pool.discrepancies()
    pool.first_token("r", 3.001)
    load = pool.load(served)
    assert load is not None
    assert (load.prefill_pace, load.lasting_pace, pool.prefill_estimate().samples) == (1.0, 1.0, 0)
    pool.complete("r", 3.5, 2, None)
    (record,) = pool.take_records(4.0, final=True).decisions
    assert (record.queued_seconds, record.ttft_seconds) == (0.0, 3.001)


def test_an_instance_that_a_proxy_chose_itself_counts_from_then_on() -> None:
    pool = scheduler("ear", window=0)
    dispatch = only(pool.submit(request("r", None, session="s"), 0.0))
    assert isinstance(dispatch, Dispatch)
    served = next(name for name in ("i03", "i04") if name != dispatch.instance)
    moved = pool.retry("r", 0.1, dispatch.instance, to=served)
    assert isinstance(moved, Dispatch)
    assert moved.instance == served
    home = pool.binding("s")
    assert home is not None
    assert home.instance == served
    assert {row.instance for row in pool.in_flight() if row.in_flight} == {served}
    pool.complete("r", 0.2, 1, None)
    assert not pool.discrepancies()
