"""A person moved a session: its next request goes to the new home even if the policy would choose another instance, and
reports the outcome of the move.
"""

from dataclasses import replace

import pytest

from fairlead.instances import InstanceState
from fairlead.reports.bindings import Binding, BindingReason
from fairlead.reports.moves import MigrationOutcome, MoveOutcome
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_testing.builders.routing import entry, request, table

CONTEXT = tuple(range(10, 14))
HOMES = ("ear", "fairlead", "dualmap", "cache-affinity", "sticky")


def lived(policy: str) -> tuple[PoolScheduler, str, str]:
    """Return a scheduler in which a person moved session s from the first instance to the second."""
    scheduler = PoolScheduler(table(4, policy=policy), "router-0", 1, sample_rate=1.0)
    turn(scheduler, "a", 0.0)
    home = home_of(scheduler)
    scheduler.take_records(1.0)
    assert home is not None
    target = next(name for name in ("i00", "i01", "i02", "i03") if name != home)
    return scheduler, home, target


def turn(scheduler: PoolScheduler, name: str, at: float) -> None:
    scheduler.submit(request(name, 2_100, session="s", blocks=CONTEXT, at=at), at)
    scheduler.first_token(name, at + 0.5)
    scheduler.complete(name, at + 0.8, 5, None)


def told(scheduler: PoolScheduler, instance: str | None, version: int = 2, change: str = "plan-1") -> None:
    home = scheduler.binding("s")
    assert home is not None
    moved = Binding(
        pool=home.pool,
        session="s",
        instance=instance,
        version=version,
        reason=BindingReason.OPERATOR,
        bound_at=2.0,
        migrated_at=2.0,
        context_tokens=2_105,
        change=change,
    )
    scheduler.apply_bindings([moved], 2.0)


def home_of(scheduler: PoolScheduler) -> str | None:
    home = scheduler.binding("s")
    return None if home is None else home.instance


@pytest.mark.parametrize("policy", HOMES)
def test_the_next_request_goes_to_the_new_home_and_settles_the_move(policy: str) -> None:
    scheduler, _, target = lived(policy)
    told(scheduler, target)
    turn(scheduler, "b", 3.0)
    records = scheduler.take_records(4.0)
    (decision,) = records.decisions
    assert decision.served_by == target
    assert records.migrations == (), "it was recorded when the person moved it"
    assert [(one.id, one.outcome) for one in records.migration_outcomes] == [("plan-1", MoveOutcome.COMPLETED)]
    assert home_of(scheduler) == target
    turn(scheduler, "c", 5.0)
    assert scheduler.take_records(6.0).migration_outcomes == (), "only its first request there tells"


def test_what_the_policy_would_have_chosen_is_recorded() -> None:
    scheduler, home, target = lived("fairlead")
    told(scheduler, target)
    turn(scheduler, "b", 3.0)
    (decision,) = scheduler.take_records(4.0).decisions
    assert (decision.chosen, decision.weighing.rule, decision.weighing.passed_over) == (target, "moved-by-person", home)


@pytest.mark.parametrize("policy", HOMES)
def test_a_new_home_that_takes_nothing_is_left_as_any_other(policy: str) -> None:
    scheduler, _, target = lived(policy)
    told(scheduler, target)
    states = {name: InstanceState.DRAINING if name == target else InstanceState.SERVING for name in ("i00", "i01", "i02", "i03")}
    entries = tuple(entry(name, state) for name, state in states.items())
    scheduler.update_table(replace(table(entries, policy=policy), version=2), 2.5)
    turn(scheduler, "b", 3.0)
    records = scheduler.take_records(4.0)
    assert home_of(scheduler) != target
    assert [(one.source, one.trigger) for one in records.migrations] == [(target, BindingReason.DRAIN)]


def test_a_session_whose_home_was_taken_away_is_a_new_one() -> None:
    scheduler, home, _ = lived("sticky")
    made = scheduler.binding("s")
    assert made is not None
    assert made.change is not None
    told(scheduler, home, version=1, change=made.change)
    told(scheduler, None, version=1)
    assert scheduler.binding("s") is None
    turn(scheduler, "b", 3.0)
    records = scheduler.take_records(4.0)
    assert records.migrations == ()
    assert [change.reason for change in records.bindings if change.previous is None] == [BindingReason.COLD]


def test_the_routers_own_later_change_ends_what_a_person_asked() -> None:
    scheduler, home, target = lived("fairlead")
    told(scheduler, target)
    told(scheduler, home, version=3, change="plan-2")
    turn(scheduler, "b", 3.0)
    found = scheduler.take_records(4.0).migration_outcomes
    assert found == (MigrationOutcome(id="plan-2", pool=found[0].pool, actual_ttft_seconds=0.5, outcome=MoveOutcome.COMPLETED),)
