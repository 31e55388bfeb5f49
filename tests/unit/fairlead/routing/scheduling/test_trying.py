"""An idle instance always gets a request, even if estimates, gates, queues and classes are against it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import Role
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead.tables import EarlyRejectionFacts, PriorityClass, SloFacts
from fairlead_testing.builders.routing import dispatches, entry, having_seen, refusals, request, table
from fairlead_testing.examples import examples

MODES = ("Disabled", "Load", "Predicted", "AfterPrefill")
LONG = 400_000
"""The tokens of a prompt that takes 64 s at the declared speed, while the target is 5 s."""


def early(mode: str, headroom: float = 1.0) -> EarlyRejectionFacts:
    return EarlyRejectionFacts(mode=mode, headroom=headroom)


def taught(scheduler: PoolScheduler, seconds: list[float], now: float) -> float:
    """Send prompts that take this long, one after the other, with answers whose steps take as long. Return the time
    after them.
    """
    for number, one in enumerate(seconds):
        name = f"taught{number}-{now}"
        (sent,) = dispatches(scheduler.submit(request(name, 2000, blocks=(number,), at=now), now))
        assert sent.request.id == name
        now += one
        scheduler.first_token(name, now)
        now += 20 * one
        scheduler.complete(name, now, 20, None)
        now += 0.01
    return now


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", [name for name in BUILT_IN.names if name != "static-pd"])
def test_an_idle_pool_tries_a_prompt_that_no_estimate_lets_be_in_time(policy: str, mode: str) -> None:
    scheduler = having_seen(PoolScheduler(table(3, policy=policy, rejection=early(mode)), "router-0", 1))
    for number in range(3):
        asked = request(f"r{number}", LONG, blocks=(number,), session=f"s{number}", at=float(number))
        outcomes = scheduler.submit(asked, float(number))
        assert not refusals(outcomes)
        assert dispatches(outcomes) or mode == "Disabled", "where nothing is refused a request may wait for whom the policy chose"


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("policy", ["static-pd", "mooncake", "fairlead", "least-request"])
def test_an_idle_pair_of_prefill_and_decode_tries_one(policy: str, mode: str) -> None:
    instances = [
        entry("p0", role=Role.PREFILL),
        entry("p1", role=Role.PREFILL),
        entry("x0", role=Role.DECODE),
        entry("x1", role=Role.DECODE),
    ]
    scheduler = having_seen(PoolScheduler(table(instances, policy=policy, rejection=early(mode), kv_cache_tokens=100_000), "router-0", 1))
    now = 0.0
    for number in range(3):
        (sent,) = dispatches(scheduler.submit(request(f"r{number}", LONG, blocks=(number,), at=now), now))
        assert sent.decode is not None
        now += 100.0
        assert not refusals(scheduler.prefilled(f"r{number}", now))
        scheduler.first_token(f"r{number}", now)
        scheduler.complete(f"r{number}", now + 1, 20, None)
        now += 2.0


def test_one_that_is_tried_is_enough_for_an_instance() -> None:
    scheduler = having_seen(PoolScheduler(table(1, policy="min-ttft", rejection=early("Load")), "router-0", 1))
    assert dispatches(scheduler.submit(request("a", LONG, blocks=(1,)), 0.0))
    (refused,) = refusals(scheduler.submit(request("b", LONG, blocks=(2,)), 0.0))
    assert refused.reason is RejectionReason.PREDICTED_TTFT
    assert refused.retry_after_seconds == 64.0, "when the instance is expected to be idle"


def test_a_request_whose_session_lives_on_a_busy_instance_goes_to_an_idle_one_in_place_of_a_refusal() -> None:
    scheduler = having_seen(PoolScheduler(table(2, policy="sticky", parameters={"queue_limit": 1}, rejection=early("Load")), "router-0", 1))
    (first,) = dispatches(scheduler.submit(request("a", LONG, blocks=(1,), session="s"), 0.0))
    (second,) = dispatches(scheduler.submit(request("b", LONG, blocks=(1, 2), session="s", at=1.0), 1.0))
    assert second.instance != first.instance
    (refused,) = refusals(scheduler.submit(request("c", LONG, blocks=(1, 2, 3), session="s", at=2.0), 2.0))
    assert refused.status == 429


def test_what_became_late_in_a_queue_goes_to_an_instance_that_has_become_idle() -> None:
    scheduler = having_seen(PoolScheduler(table(2, policy="fairlead", rejection=early("Load")), "router-0", 1))
    for name in ("a", "b"):
        assert dispatches(scheduler.submit(request(name, 20_000, blocks=(ord(name),)), 0.0))
    assert not scheduler.submit(request("c", 10_000, blocks=(ord("a"), 3), at=0.1), 0.1)
    home = next(load.entry.id for load in scheduler.loads() if load.waiting)
    other = next(load for load in scheduler.loads() if load.entry.id != home)
    gone = next(iter(other.in_flight))
    scheduler.cancel(gone, 4.0)
    outcomes = (*scheduler.tick(4.5), *scheduler.tick(4.6))
    assert [(one.request.id, one.instance) for one in dispatches(outcomes)] == [("c", other.entry.id)]
    assert not refusals(outcomes)


def test_what_waited_for_too_long_goes_to_an_idle_instance_and_a_client_that_gave_up_is_refused() -> None:
    parameters = {"queue_timeout_seconds": 5.0}
    scheduler = PoolScheduler(table(2, policy="sticky", parameters=parameters), "router-0", 1)
    (first,) = dispatches(scheduler.submit(request("a", blocks=(1,), session="s"), 0.0))
    for name in ("b", "c"):
        assert not scheduler.submit(request(name, blocks=(1, 2), session="s", at=0.1), 0.1)
    (given_up,) = refusals(scheduler.give_up("c", 1.0))
    assert given_up.reason is RejectionReason.QUEUE_TIMEOUT
    (sent,) = dispatches(scheduler.tick(6.0))
    assert (sent.request.id, sent.instance == first.instance) == ("b", False)


def test_an_engine_that_computes_nothing_is_sent_what_waits_for_it_however_late_that_is() -> None:
    scheduler = PoolScheduler(table(1, policy="fairlead", parameters={"calm_load": 0.0, "late_load": 0.0}), "router-0", 1)
    assert dispatches(scheduler.submit(request("a", 30_000, blocks=(1,)), 0.0))
    assert not scheduler.submit(request("b", 30_000, blocks=(2,), at=0.1), 0.1)
    scheduler.first_token("a", 9.0)
    scheduler.complete("a", 9.5, 5, None)
    assert scheduler.load("i00") is not None
    assert [one.request.id for one in dispatches(scheduler.tick(9.6))] == ["b"] or not scheduler.waiting()


def test_only_instances_that_may_serve_it_try_a_request() -> None:
    scheduler = having_seen(PoolScheduler(table(2, policy="min-ttft", rejection=early("Load")), "router-0", 1))
    assert dispatches(scheduler.submit(replace(request("a", LONG, blocks=(1,)), within=("i00",)), 0.0))
    assert refusals(scheduler.submit(replace(request("b", LONG, blocks=(2,)), within=("i00",)), 0.0))
    (sent,) = dispatches(scheduler.submit(replace(request("c", LONG, blocks=(3,)), within=("i01",)), 0.0))
    assert sent.instance == "i01"


def test_a_decision_that_an_estimate_would_have_refused_says_so() -> None:
    scheduler = having_seen(PoolScheduler(table(2, policy="min-ttft", rejection=early("Load")), "router-0", 1, sample_rate=1.0))
    (sent,) = dispatches(scheduler.submit(request("a", LONG, blocks=(1,)), 0.0))
    scheduler.first_token("a", 1.0)
    scheduler.complete("a", 1.5, 2, None)
    (decision,) = scheduler.take_records(2.0, final=True).decisions
    assert (decision.weighing.rule, decision.chosen, sent.reason) == ("idle-instance", sent.instance, "fallback")


def test_a_class_of_low_priority_is_tried_too() -> None:
    classes = (PriorityClass(name="batch", priority=-1, share=0.1),)
    scheduler = having_seen(PoolScheduler(table(1, policy="fairlead", rejection=early("Predicted"), classes=classes), "router-0", 1))
    assert dispatches(scheduler.submit(replace(request("a", LONG), priority_class="batch"), 0.0))


HISTORIES = st.lists(st.floats(0.0001, 500.0), min_size=0, max_size=30)


@examples(60)
@given(
    st.sampled_from(MODES),
    st.sampled_from(["fairlead", "min-ttft", "dualmap", "sticky", "preble", "least-request"]),
    HISTORIES,
    st.integers(1, 2_000_000),
    st.floats(0.001, 2.0),
    st.sampled_from(["configured", "bilinear"]),
    st.booleans(),
)
def test_whatever_was_learned_an_idle_pool_accepts_a_request_in_every_mode(
    mode: str, policy: str, history: list[float], tokens: int, headroom: float, form: str, shared: bool
) -> None:
    kind = SharedScheduler if shared else PoolScheduler
    parameters = {"prefill_estimate": form, "estimate_min_samples": 10}
    slo = SloFacts(ttft_seconds=1.0, tpot_seconds=0.01)
    scheduler = kind(table(2, policy=policy, parameters=parameters, rejection=early(mode, headroom), slo=slo), "router-0", 1)
    scheduler.know_routers(3)
    now = taught(scheduler, history, 0.0)
    (sent,) = scheduler.submit(request("r", tokens, blocks=(99,), at=now), now)
    assert dispatches([sent])
