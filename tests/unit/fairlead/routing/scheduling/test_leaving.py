"""Why a session leaves its home, and which gains are too small for that."""

from dataclasses import replace
from typing import Any

import pytest

from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState
from fairlead.reports.decisions import DecisionRecord
from fairlead.reports.moves import MigrationRecord
from fairlead.routing.contracts.catalogues import PolicyCatalogue, PolicyEntry
from fairlead.routing.contracts.weighing import PolicyTerms
from fairlead.routing.explanations.checking import contradictions
from fairlead.routing.explanations.explaining import explain
from fairlead.routing.explanations.grounds import ground_of
from fairlead.routing.explanations.move_checking import cause_contradictions
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import RoutingFacts
from fairlead_testing.builders.routing import dispatches, entry, request, table
from fairlead_testing.worlds.watched_policy import Recorded


def at_home(policy: str, crowd: int, **parameters: Any) -> tuple[PoolScheduler, str, str]:
    """Return a scheduler in which session s has a home where `crowd` tokens of other requests wait.

    Nothing waits at the other instance.
    """
    scheduler = PoolScheduler(table(2, policy=policy, parameters=parameters, window=0), "router-0", 1, sample_rate=1.0)
    scheduler.submit(request("a", 100, session="s"), 0.0)
    scheduler.first_token("a", 0.1)
    scheduler.complete("a", 0.2, 5, None)
    home = scheduler.binding("s")
    assert home is not None
    assert home.instance is not None
    if crowd:
        scheduler.submit(replace(request("crowd", crowd, session="u", at=1.0), within=(home.instance,)), 1.0)
    scheduler.take_records(1.0)
    return scheduler, home.instance, "i01" if home.instance == "i00" else "i00"


def next_turn(scheduler: PoolScheduler, **more: Any) -> tuple[str, list[MigrationRecord], DecisionRecord]:
    """Return the instance of the session's next request, and the records of that."""
    (sent,) = dispatches(scheduler.submit(replace(request("b", 200, session="s", at=1.0), **more), 1.0))
    scheduler.complete("b", 2.0, 5, None)
    records = scheduler.take_records(3.0, final=True)
    decision = next(one for one in records.decisions if one.request == "b")
    for move in records.migrations:
        assert cause_contradictions(move) == []
    return sent.instance, list(records.migrations), decision


@pytest.mark.parametrize("policy", ["dualmap", "fairlead"])
def test_a_gain_below_the_least_moves_nobody_and_the_decision_says_so(policy: str) -> None:
    scheduler, home, other = at_home(policy, 300)  # 48 ms of prefill
    instance, moves, decision = next_turn(scheduler)
    assert (instance, moves) == (home, [])
    weighing = decision.weighing
    assert (weighing.rule, weighing.passed_over) == ("gain-too-small", other)
    assert 0 < weighing.limits["gain_seconds"] < weighing.limits["least_gain_seconds"] == 0.05
    ground = ground_of(BUILT_IN.terms(policy), weighing.rule, weighing.limits)
    known = Recorded(
        chosen=home,
        rule=ground.rule,
        terms=ground.terms,
        limits=ground.limits,
        candidates=weighing.candidates,
        passed_over=weighing.passed_over,
    )
    assert contradictions(known, ground.parts, weighing.considered, decision.reason) == []
    assert "predicted to gain too little time" in explain(known)


def test_a_gain_of_the_least_moves_a_session_for_what_decided() -> None:
    scheduler, _, other = at_home("dualmap", 600)
    instance, (move,), _ = next_turn(scheduler)
    assert (instance, move.trigger) == (other, "prefix-equal")
    assert move.crossed is not None
    assert move.threshold is not None
    assert move.crossed > move.threshold
    assert (move.source_hit_tokens, move.target_hit_tokens, move.least_gain_seconds) == (0, 0, 0.05)
    assert move.benefit_seconds == pytest.approx(600 / 6250)


def test_slo_is_the_trigger_only_where_staying_was_predicted_late() -> None:
    for crowd, trigger in ((30_000, "prefix-equal"), (40_000, "prefix-equal")):
        scheduler, _, _ = at_home("dualmap", crowd)
        assert next_turn(scheduler)[1][0].trigger == trigger, "both hold nothing: a tie, however late"
    for hot, trigger in ((1_000, "hot-migration"), (20_000, "hot-migration")):
        scheduler, _, _ = at_home("ear", 25_000, hot_tokens=hot)
        (move,) = next_turn(scheduler)[1]
        assert (move.trigger, move.crossed, move.threshold, move.crossed_unit) == (trigger, 25_000.0, float(hot), "tokens")


def test_a_home_outside_the_subset_is_left_for_that_whatever_it_costs() -> None:
    scheduler, _, other = at_home("dualmap", 0)
    instance, (move,), _ = next_turn(scheduler, within=(other,))
    assert (instance, move.trigger, move.least_gain_seconds) == (other, "outside-subset", None)


def test_a_home_whose_queue_is_full_is_left_for_that() -> None:
    parameters = {"queue_limit": 1, "migrate": False}
    scheduler = PoolScheduler(table(2, policy="ear", parameters=parameters, window=1), "router-0", 1, sample_rate=1.0)
    scheduler.submit(request("a", 100, session="s"), 0.0)
    scheduler.submit(request("b", 100, session="s", at=0.0), 0.0)
    scheduler.submit(request("c", 100, session="s", at=0.0), 0.0)
    (move,) = scheduler.take_records(1.0).migrations
    assert (move.trigger, move.crossed, move.threshold, move.crossed_unit) == ("queue-full", 1.0, 1, "requests")


def test_a_policy_that_keeps_homes_and_does_not_say_why_it_leaves_them_is_refused() -> None:
    class Silent:
        name = "silent"
        binds = True

    entry = PolicyEntry(name="silent", intent="", build=lambda parameters, seed: Silent(), terms=PolicyTerms(rules=()))  # type: ignore[arg-type,return-value]
    with pytest.raises(InvalidInput, match="lacks cause_to_leave; implement that method"):
        PolicyCatalogue({"silent": lambda: entry}).build(RoutingFacts(policy="silent"), 1)


def rolled(policy: str, *, stays: tuple[bool, bool], last: InstanceState = InstanceState.SERVING) -> PoolScheduler:
    """Return a scheduler in which a session's home drains. Of the two other instances the first is idle, the second
    busy.
    """
    before = [entry("home"), *(entry(name, InstanceState.DRAINING) for name in ("idle", "busy"))]
    scheduler = PoolScheduler(table(before, policy=policy), "router-0", 1, sample_rate=1.0)
    (sent,) = dispatches(scheduler.submit(request("r0", 100, session="s"), 0.0))
    assert sent.instance == "home"
    scheduler.first_token("r0", 0.5)
    scheduler.complete("r0", 1.0, 1, None)
    crowd = [entry("home", InstanceState.DRAINING), entry("idle", InstanceState.DRAINING), entry("busy")]
    scheduler.update_table(replace(table(crowd, policy=policy), version=2), 1.5)
    scheduler.submit(request("crowd", 2_000, blocks=(9,)), 2.0)
    after = [
        entry("home", InstanceState.DRAINING),
        entry("idle", stays=stays[0]),
        entry("busy", last, stays=stays[1]),
    ]
    scheduler.update_table(replace(table(after, policy=policy), version=3), 2.5)
    scheduler.take_records(3.0)
    return scheduler


@pytest.mark.parametrize("policy", ["fairlead", "ear", "sticky", "cache-affinity"])
def test_a_session_whose_home_drains_goes_to_an_instance_that_stays_and_moves_once(policy: str) -> None:
    def goes_to(scheduler: PoolScheduler) -> str:
        scheduler.submit(request("next", 120, session="s", at=3.0), 3.0)
        tracked = scheduler._state.requests["next"]
        assert not scheduler.discrepancies()
        return tracked.instance

    assert goes_to(rolled(policy, stays=(False, True))) == "busy"
    assert goes_to(rolled(policy, stays=(False, True), last=InstanceState.DRAINING)) == "idle", "nobody else is there"
    if policy != "sticky":  # draws by chance
        assert goes_to(rolled(policy, stays=(True, True))) == "idle"
        assert goes_to(rolled(policy, stays=(False, False))) == "idle"
