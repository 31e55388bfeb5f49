"""What is simulated of a plan: the pool as it is and as planned, or why nothing is."""

from typing import Any

import pytest

from fairlead.instance_marks import CORDONED_ANNOTATION, DRAIN_ANNOTATION
from fairlead.instances import InstanceState, Role
from fairlead.pools import parse_spec
from fairlead_api.plans.effects import InstanceQuestion, Question, ScaleQuestion, SpecQuestion
from fairlead_api.plans.evidence import InstanceUse, PoolUse
from fairlead_api.simulations.plan_changes import CannotSimulate, trial_of
from fairlead_client.resources.plans import PlanKind
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


def planned(kind: PlanKind, question: Question, spec: dict[str, Any] | None = None) -> PoolChange:
    return trial_of(kind, question, spec or BASE, USE, 12.0).as_planned


def test_another_number_is_reached_from_the_declared_one_by_instances_that_take_as_long_to_start_as_those_that_serve() -> None:
    trial = trial_of(PlanKind.SCALE, ScaleQuestion(role=Role.BOTH, before=4, after=6), BASE, USE, 12.0)
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
        return planned(PlanKind.DRAIN, InstanceQuestion(mark=DRAIN_ANNOTATION, is_set=True, instance=name, replaced=replaced))

    assert [drain(name).drained for name in ("a", "b", "c")] == [2, 0, 1]
    assert drain("a", replaced=False).is_replaced is False


def test_a_policy_comes_with_all_its_parameters_and_early_rejection_with_its_headroom() -> None:
    after = parse_spec({**BASE, "routing": {"policy": "ear", "parameters": {"cooldown_seconds": 9}, "prefillsInFlight": 3}})
    assert planned(PlanKind.POLICY, SpecQuestion(kind=PlanKind.POLICY, after=after)) == PoolChange(
        policy="ear", parameters={"cooldown_seconds": 9}, prefills_in_flight=3
    )
    after = parse_spec({**BASE, "earlyRejection": {"mode": "Load", "headroom": 0.7}})
    question = SpecQuestion(kind=PlanKind.EARLY_REJECTION, after=after)
    assert planned(PlanKind.EARLY_REJECTION, question) == PoolChange(early_rejection="Load", headroom=0.7)


def test_a_ratio_that_changes_itself_is_simulated_by_its_rules() -> None:
    after = parse_spec({**ROLES, "ratio": {"mode": "Fixed"}})
    trial = trial_of(PlanKind.RATIO, SpecQuestion(kind=PlanKind.RATIO, after=after), ROLES, USE, 12.0)
    assert trial.as_it_is.autoscaled is not None
    found = {one.role: (one.min_replicas, one.max_replicas) for one in trial.as_it_is.autoscaled.roles}
    assert found == {Role.PREFILL: (0, 6), Role.DECODE: (0, 64)}, "each role has its own bounds"
    assert trial.as_planned == PoolChange()


@pytest.mark.parametrize(
    ("kind", "question", "spec", "why"),
    [
        (PlanKind.SCALE, ScaleQuestion(role=Role.BOTH, before=3, after=0), BASE, "no instance is left"),
        (PlanKind.SCALE, ScaleQuestion(role=Role.BOTH, before=0, after=3), BASE, "no instance serves now"),
        (
            PlanKind.SCALE,
            ScaleQuestion(role=Role.BOTH, before=3, after=4),
            {**BASE, "scaling": {"mode": "SLO"}},
            "the planned number would not stay",
        ),
        (PlanKind.DRAIN, InstanceQuestion(mark=DRAIN_ANNOTATION, is_set=True, instance="d"), BASE, "serves nothing now"),
        (PlanKind.UNDRAIN, InstanceQuestion(mark=DRAIN_ANNOTATION, is_set=False, instance="d"), BASE, "stays where it is"),
        (PlanKind.DRAIN, InstanceQuestion(mark=DRAIN_ANNOTATION, is_set=False, instance="a"), BASE, "stays where it is"),
        (PlanKind.CORDON, InstanceQuestion(mark=CORDONED_ANNOTATION, is_set=True, instance="a"), BASE, "of this instance"),
        (PlanKind.SLO, SpecQuestion(kind=PlanKind.SLO, after=parse_spec(BASE)), BASE, "the latencies that were recorded"),
        (
            PlanKind.RATIO,
            SpecQuestion(kind=PlanKind.RATIO, after=parse_spec({**ROLES, "ratio": {"mode": "Advise"}})),
            {**ROLES, "ratio": {"mode": "Fixed"}},
            "no instance changes its role",
        ),
    ],
)
def test_what_no_simulation_can_tell_is_said(kind: PlanKind, question: Question, spec: dict[str, Any], why: str) -> None:
    with pytest.raises(CannotSimulate, match=why):
        trial_of(kind, question, spec, USE, 12.0)


def test_every_other_kind_says_why_it_is_not_simulated() -> None:
    simulated = {PlanKind.SCALE, PlanKind.DRAIN, PlanKind.UNDRAIN, PlanKind.POLICY, PlanKind.EARLY_REJECTION, PlanKind.RATIO}
    for kind in set(PlanKind) - simulated:
        with pytest.raises(CannotSimulate):
            trial_of(kind, SpecQuestion(kind=kind, after=parse_spec(BASE)), BASE, USE, 12.0)
