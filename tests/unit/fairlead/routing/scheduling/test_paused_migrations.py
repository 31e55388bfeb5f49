"""While a pool's migrations are paused, sessions stay at their homes, and queued requests stay in their queues."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fairlead.instances import InstanceState
from fairlead.reports.bindings import BindingReason
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.explanations.checking import contradictions
from fairlead.routing.explanations.explaining import explain
from fairlead.routing.explanations.grounds import ground_of
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import RoutingTable
from fairlead_testing.builders.routing import dispatches, entry, request, table
from fairlead_testing.worlds.watched_policy import Recorded

CONTEXT = tuple(range(10, 14))
HOMES = ("ear", "fairlead", "dualmap", "cache-affinity", "sticky")


def paused(of: RoutingTable, version: int = 2, mode: str = "Paused") -> RoutingTable:
    return replace(of, version=version, routing=replace(of.routing, migrations=mode))


def scheduler_of(of: RoutingTable) -> PoolScheduler:
    return PoolScheduler(of, "router-0", 1, sample_rate=1.0)


def home_of(scheduler: PoolScheduler, session: str = "s") -> str | None:
    home = scheduler.binding(session)
    return None if home is None else home.instance


def sent(outcomes: Sequence[Dispatch | Refusal]) -> list[tuple[str, str]]:
    return [(one.request.id, one.instance) for one in dispatches(outcomes)]


def crowded(policy: str, mode: str, instances: int = 4, **more: int) -> tuple[PoolScheduler, str]:
    """Return a scheduler in which 60,000 tokens of other requests wait at the home of session s, and nothing
    elsewhere.
    """
    parameters = more | ({"hot_tokens": 3_000} if policy == "ear" else {})
    scheduler = scheduler_of(paused(table(instances, policy=policy, parameters=parameters), 1, mode))
    scheduler.submit(request("a", 2_100, session="s", blocks=CONTEXT), 0.0)
    scheduler.first_token("a", 0.5)
    scheduler.complete("a", 1.0, 5, None)
    home = home_of(scheduler)
    assert home is not None
    for number in range(3):
        crowd = replace(request(f"crowd{number}", 20_000, session=f"u{number}", at=1.0), within=(home,))
        scheduler.submit(crowd, 1.0)
    scheduler.take_records(1.0)
    return scheduler, home


@pytest.mark.parametrize("policy", ["ear", "fairlead"])
def test_a_session_of_a_hot_instance_stays_while_paused_and_leaves_when_not(policy: str) -> None:
    for mode, stays in (("Paused", True), ("Enabled", False)):
        scheduler, home = crowded(policy, mode)
        scheduler.submit(request("b", 2_200, session="s", blocks=CONTEXT, at=2.0), 2.0)
        scheduler.tick(2.1)
        assert (home_of(scheduler) == home) is stays
        records = scheduler.take_records(3.0)
        assert bool(records.migrations) is not stays


def test_a_request_held_back_for_a_home_whose_queue_is_full_goes_where_the_policy_chose_without_its_session() -> None:
    scheduler, home = crowded("ear", "Paused", queue_limit=2)
    ((name, instance),) = sent(scheduler.submit(request("b", 2_200, session="s", blocks=CONTEXT, at=2.0), 2.0))
    assert (name, instance != home) == ("b", True)
    assert home_of(scheduler) == home


@pytest.mark.parametrize("policy", HOMES)
def test_the_record_of_a_move_held_back_says_where_it_would_have_gone(policy: str) -> None:
    scheduler, home = crowded(policy, "Paused")
    scheduler.submit(request("b", 2_200, session="s", blocks=CONTEXT, at=2.0), 2.0)
    for name in ("crowd0", "crowd1", "crowd2"):
        scheduler.first_token(name, 3.0)
    scheduler.first_token("b", 4.0)
    scheduler.complete("b", 5.0, 5, None)
    (decision,) = (one for one in scheduler.take_records(6.0).decisions if one.request == "b")
    assert (decision.chosen, decision.served_by) == (home, home)
    if decision.weighing.rule == "migrations-paused":
        assert decision.reason is DecisionReason.SESSION_BOUND
        assert decision.weighing.passed_over not in (None, home)
    weighing = decision.weighing
    ground = ground_of(BUILT_IN.terms(policy), weighing.rule, weighing.limits)
    recorded = Recorded(
        chosen=home,
        rule=ground.rule,
        terms=ground.terms,
        limits=ground.limits,
        candidates=weighing.candidates,
        passed_over=weighing.passed_over,
    )
    assert contradictions(recorded, ground.parts, weighing.considered, decision.reason) == []
    assert explain(recorded)


def test_a_move_that_was_decided_before_the_pause_is_not_made() -> None:
    pool = table(2, policy="ear", parameters={"hot_tokens": 3_000})
    scheduler = scheduler_of(pool)
    scheduler.submit(request("a", 2_100, session="s", blocks=CONTEXT), 0.0)
    scheduler.first_token("a", 0.5)
    scheduler.complete("a", 1.0, 5, None)
    scheduler.submit(request("other", 2_500, session="t"), 1.0)
    scheduler.submit(request("crowd", 9_000, session="u"), 1.0)
    scheduler.submit(request("b", 2_200, session="s", blocks=CONTEXT, at=2.0), 2.0)
    scheduler.update_table(paused(pool), 2.5)
    assert sent(scheduler.first_token("other", 3.0)) == []
    assert sent(scheduler.first_token("crowd", 4.0)) == [("b", "i00")]
    records = scheduler.take_records(5.0)
    assert records.migrations == ()
    assert [(one.source, one.target, one.trigger) for one in records.reroutes] == [("i01", "i00", BindingReason.OPERATOR)]
    assert home_of(scheduler) == "i00"


@pytest.mark.parametrize("policy", HOMES)
def test_a_draining_home_is_left_all_the_same(policy: str) -> None:
    scheduler, home = crowded(policy, "Paused")
    states = {f"i{number:02}": InstanceState.SERVING for number in range(4)} | {home: InstanceState.DRAINING}
    of = paused(table(4, policy=policy, parameters={"hot_tokens": 3_000} if policy == "ear" else {}), 2)
    scheduler.update_table(replace(of, instances=tuple(entry(name, state) for name, state in states.items())), 2.0)
    scheduler.submit(request("b", 2_200, session="s", blocks=CONTEXT, at=2.0), 2.0)
    scheduler.tick(2.1)
    assert home_of(scheduler) != home


def test_a_full_queue_at_home_sends_the_request_elsewhere_and_the_session_stays() -> None:
    scheduler = scheduler_of(paused(table(2, policy="ear", parameters={"hot_tokens": 3_000, "queue_limit": 1}), 1))
    scheduler.submit(request("a", 2_100, session="s", blocks=CONTEXT), 0.0)
    scheduler.first_token("a", 0.5)
    scheduler.complete("a", 1.0, 5, None)
    scheduler.submit(request("other", 9_000, session="t"), 1.0)
    scheduler.submit(request("crowd", 9_000, session="s", at=1.0), 1.0)
    scheduler.submit(request("waits", 500, session="s", at=1.0), 1.0)
    scheduler.submit(request("b", 2_200, session="s", blocks=CONTEXT, at=2.0), 2.0)
    assert home_of(scheduler) == "i00"
    assert scheduler.take_records(3.0).migrations == ()
    load = scheduler.load("i01")
    assert load is not None
    assert load.waiting == 1
