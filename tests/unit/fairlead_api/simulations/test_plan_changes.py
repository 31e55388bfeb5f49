"""The simulated part of a plan: the pool without and with the plan, or the reason why nothing is simulated."""

from typing import Any

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.pools import parse_spec
from fairlead_api.plans.evidence import InstanceUse, PoolUse
from fairlead_api.plans.kinds.cordon import CordonQuestion
from fairlead_api.plans.kinds.drain import DrainQuestion
from fairlead_api.plans.kinds.early_rejection import EarlyRejectionQuestion
from fairlead_api.plans.kinds.engines import EnginesQuestion
from fairlead_api.plans.kinds.migrations import MigrationsQuestion
from fairlead_api.plans.kinds.move import SessionQuestion
from fairlead_api.plans.kinds.policy import PolicyQuestion
from fairlead_api.plans.kinds.ratio import RatioQuestion
from fairlead_api.plans.kinds.revert import RevertQuestion
from fairlead_api.plans.kinds.ring import RingQuestion
from fairlead_api.plans.kinds.rollback import Rollback, RollbackQuestion
from fairlead_api.plans.kinds.rollout import RolloutQuestion
from fairlead_api.plans.kinds.scale import ScaleQuestion
from fairlead_api.plans.kinds.scaling import ScalingQuestion
from fairlead_api.plans.kinds.schedule import ScheduleQuestion
from fairlead_api.plans.kinds.slo import SloQuestion
from fairlead_api.plans.kinds.weight import WeightQuestion
from fairlead_api.plans.questions import CannotSimulate, Question
from fairlead_api.simulations.plan_changes import trial_of
from fairlead_client.simulation_jobs import PoolChange

BASE: dict[str, Any] = {"model": "m", "replicas": 3, "routing": {"policy": "dualmap"}}
ROLES = {
    "model": "m",
    "roles": [{"name": "prefill", "replicas": 2, "maxReplicas": 6}, {"name": "decode", "replicas": 4}],
    "engine": {"type": "simulated"},
    "ratio": {"mode": "Auto"},
}
USE = PoolUse(
    facts=parse_spec(BASE).facts(),
    instances=[
        InstanceUse(id=name, state=InstanceState(state), bound_sessions=sessions, cache_tokens=100 * sessions, in_flight=0)
        for name, state, sessions in (("a", "Serving", 9), ("b", "Serving", 1), ("c", "Serving", 5), ("d", "Draining", 0))
    ],
    attainment=None,
    requests_per_second=None,
    miss_tokens_per_second=None,
)


def planned(question: Question, spec: dict[str, Any] | None = None) -> PoolChange:
    return trial_of(question, spec or BASE, USE, 12.0).as_planned


def test_another_number_is_reached_from_the_declared_one_by_instances_that_take_as_long_to_start_as_those_that_serve() -> None:
    trial = trial_of(ScaleQuestion(role=Role.BOTH, before=4, after=6), BASE, USE, 12.0)
    assert trial.instances == {Role.BOTH: 4}
    assert trial.as_planned == PoolChange(replicas=6, startup_seconds=12.0)
    assert [(run.number, run.seed, run.rate, run.change) for run in trial.runs] == [
        (0, 0, 1.0, trial.as_it_is),
        (1, 0, 1.0, trial.as_planned),
        (2, 1, 1.0, trial.as_it_is),
        (3, 1, 1.0, trial.as_planned),
        (4, 0, 0.8, trial.as_planned),
        (5, 0, 1.25, trial.as_planned),
    ]
    assert {run.policy for run in trial.runs} == {"dualmap"}


def test_an_instance_is_drained_where_one_stands_that_costs_as_much_to_drain() -> None:
    def drain(name: str, *, replaced: bool = True) -> PoolChange:
        return planned(DrainQuestion(is_set=True, instance=name, replaced=replaced))

    assert [drain(name).drained for name in ("a", "b", "c")] == [2, 0, 1]
    assert drain("a", replaced=False).is_replaced is False


def test_a_policy_comes_with_all_its_parameters_and_early_rejection_with_its_headroom() -> None:
    after = parse_spec({**BASE, "routing": {"policy": "ear", "parameters": {"cooldown_seconds": 9}, "prefillsInFlight": 3}})
    assert planned(PolicyQuestion(after=after)) == PoolChange(policy="ear", parameters={"cooldown_seconds": 9}, prefills_in_flight=3)
    after = parse_spec({**BASE, "earlyRejection": {"mode": "Load", "headroom": 0.7}})
    question = EarlyRejectionQuestion(after=after)
    assert planned(question) == PoolChange(early_rejection="Load", headroom=0.7)


def test_a_ratio_that_changes_itself_is_simulated_by_its_rules() -> None:
    after = parse_spec({**ROLES, "ratio": {"mode": "Fixed"}})
    trial = trial_of(RatioQuestion(after=after), ROLES, USE, 12.0)
    assert trial.as_it_is.autoscaled is not None
    found = {one.role: (one.min_replicas, one.max_replicas) for one in trial.as_it_is.autoscaled.roles}
    assert found == {Role.PREFILL: (0, 6), Role.DECODE: (0, 64)}, "each role has its own bounds"
    assert trial.as_planned == PoolChange()


@pytest.mark.parametrize(
    ("question", "spec", "why"),
    [
        (ScaleQuestion(role=Role.BOTH, before=3, after=0), BASE, "no instance is left"),
        (ScaleQuestion(role=Role.BOTH, before=0, after=3), BASE, "no instance serves now"),
        (
            ScaleQuestion(role=Role.BOTH, before=3, after=4),
            {**BASE, "scaling": {"mode": "SLO"}},
            "the planned number would not stay",
        ),
        (DrainQuestion(is_set=True, instance="d"), BASE, "serves nothing now"),
        (DrainQuestion(is_set=False, instance="d"), BASE, "stay where they are"),
        (DrainQuestion(is_set=False, instance="a"), BASE, "stay where they are"),
        (CordonQuestion(is_set=True, instance="a"), BASE, "of this instance"),
        (SloQuestion(after=parse_spec(BASE)), BASE, "recorded latencies"),
        (
            RatioQuestion(after=parse_spec({**ROLES, "ratio": {"mode": "Advise"}})),
            {**ROLES, "ratio": {"mode": "Fixed"}},
            "no instance changes its role",
        ),
    ],
)
def test_what_no_simulation_can_tell_is_said(question: Question, spec: dict[str, Any], why: str) -> None:
    with pytest.raises(CannotSimulate, match=why):
        trial_of(question, spec, USE, 12.0)


@pytest.mark.parametrize(
    "question",
    [
        *(
            of(after=parse_spec(BASE))
            for of in (SloQuestion, RingQuestion, ScalingQuestion, RolloutQuestion, MigrationsQuestion, ScheduleQuestion)
        ),
        CordonQuestion(is_set=False, instance="a"),
        EnginesQuestion(change={}),
        RevertQuestion(parts=()),
        RollbackQuestion(rollback=Rollback(roles=(Role.BOTH,), updated={}, paused=False)),
        SessionQuestion(source=None, target=None, context_tokens=0),
        WeightQuestion(instance="a", before=1.0, after=2.0),
    ],
)
def test_every_other_kind_says_why_it_is_not_simulated(question: Question) -> None:
    with pytest.raises(CannotSimulate, match=r"[a-z]"):
        trial_of(question, BASE, USE, 12.0)
