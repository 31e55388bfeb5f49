"""Turns a planned change into the runs that show its effect: the pool as it is and as planned, under two seeds, and as
planned at two other rates. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.instance_marks import DRAIN_ANNOTATION
from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead.pools import PoolSpec, TableFacts, parse_spec
from fairlead.scaling.specs import RatioMode, ScalingMode
from fairlead_api.plans.effects import InstanceQuestion, Question, ScaleQuestion, SpecQuestion
from fairlead_api.plans.evidence import PoolUse
from fairlead_client.resources.plans import PlanKind
from fairlead_client.simulation_jobs import Autoscaled, JobRun, PoolChange, RoleRange

SEEDS = (0, 1)
"""Each is simulated: if the results differ, nothing is known."""
RATES = (0.8, 1.25)
"""The planned pool is also simulated with requests that arrive this many times as fast."""


class CannotSimulate(Exception):
    """No simulation shows what the change does; `str(error)` says why, in words for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is simulated of a plan: `instances` of each role at first, of these `weights`, and then either change."""

    facts: TableFacts
    instances: Mapping[Role, int]
    weights: Sequence[float]
    as_it_is: PoolChange
    as_planned: PoolChange

    @property
    def runs(self) -> list[JobRun]:
        """Seed by seed, as it is and then as planned; then as planned at other rates."""
        routing = self.facts.routing
        changes = [(seed, 1.0, change) for seed in SEEDS for change in (self.as_it_is, self.as_planned)]
        changes += [(SEEDS[0], rate, self.as_planned) for rate in RATES]
        return [
            JobRun(number=number, policy=routing.policy, parameters=dict(routing.parameters), rate=rate, seed=seed, change=change)
            for number, (seed, rate, change) in enumerate(changes)
        ]


_JUDGED_OTHERWISE: Mapping[PlanKind, str] = {
    PlanKind.SLO: "targets change how requests are judged, and the effect above is from the latencies that were recorded",
    PlanKind.RING: "the share of keys that move is computed from the ring itself",
    PlanKind.SCALING: "see scaling's advice and its recorded decisions for what it would do",
    PlanKind.SCHEDULE: "it changes the pool at other times than now",
    PlanKind.ROLLOUT: "another pace of a rollout changes neither the policy nor the number of instances",
    PlanKind.ROLLBACK: "the simulator does not know how former engines and templates differ",
    PlanKind.ENGINES: "the simulator does not know the engine that comes or goes",
    PlanKind.MIGRATIONS: "it holds sessions where they are until it is taken back",
    PlanKind.DELETE: "nothing is served any more",
    PlanKind.MOVE: "one session more or less does not show",
    PlanKind.UNPIN: "one session more or less does not show",
    PlanKind.CORDON: "the effect above is computed from the sessions and keys of this instance",
    PlanKind.UNCORDON: "the effect above is computed from the sessions and keys of this instance",
    PlanKind.WEIGHT: "the share of keys that move is computed from the ring itself",
    PlanKind.REVERT: "it changes several parts of the spec at once, each of which can be planned and simulated alone",
}


def trial_of(kind: PlanKind, question: Question, spec: Mapping[str, Any] | None, use: PoolUse, startup_seconds: float) -> Trial:
    """What to simulate of a plan for a pool in use. `spec` is the object's before the change, where that is a pool.

    Raises CannotSimulate.
    """
    counted = {role: sum(one.role is role and one.state in ACCEPTING for one in use.instances) for role in Role}
    instances = {role: number for role, number in counted.items() if number}
    as_it_is = PoolChange()
    match question:
        case ScaleQuestion():
            if not question.after:
                raise CannotSimulate("no instance is left to serve anything")
            if not question.before:
                raise CannotSimulate("no instance serves now, so there is nothing to compare with")
            if spec is not None and _before(spec).scaling.mode is ScalingMode.SLO:
                raise CannotSimulate("the pool scales automatically (scaling.mode SLO), so the planned number would not stay")
            instances[question.role] = question.before
            as_planned = PoolChange(role=question.role, replicas=question.after, startup_seconds=startup_seconds)
        case InstanceQuestion(mark=mark, is_set=True) if mark == DRAIN_ANNOTATION:
            as_planned = _drained(question, use, instances, startup_seconds)
        case InstanceQuestion(mark=mark) if mark == DRAIN_ANNOTATION:  # also of a drain that is undone, whose kind stays "drain"
            raise CannotSimulate("what has moved stays where it is")
        case SpecQuestion(kind=PlanKind.POLICY):
            routing = question.after.facts().routing
            as_planned = PoolChange(
                policy=routing.policy, parameters=dict(routing.parameters), prefills_in_flight=routing.prefills_in_flight
            )
        case SpecQuestion(kind=PlanKind.EARLY_REJECTION):
            rejection = question.after.facts().early_rejection
            as_planned = PoolChange(early_rejection=rejection.mode, headroom=rejection.headroom)
        case SpecQuestion(kind=PlanKind.RATIO):
            as_it_is, as_planned = _ratio(_before(spec), question.after, startup_seconds)
        case _:
            raise CannotSimulate(_JUDGED_OTHERWISE[kind])
    if not instances:
        raise CannotSimulate("no instance serves now")
    computing = [one for one in use.instances if one.state in ACCEPTING and one.role is not Role.DECODE]
    weights = [1.0 if one.state is InstanceState.WARMING else one.weight for one in computing]
    return Trial(facts=use.facts, instances=instances, weights=weights, as_it_is=as_it_is, as_planned=as_planned)


def _drained(question: InstanceQuestion, use: PoolUse, instances: Mapping[Role, int], startup_seconds: float) -> PoolChange:
    """The simulated instance with the same place in its role as this one, in the order of the cost of leaving."""
    one = next((use for use in use.instances if use.id == question.instance), None)
    if one is None or one.state not in ACCEPTING:
        raise CannotSimulate("the instance serves nothing now")
    if instances[one.role] < 2 and not question.replaced:
        raise CannotSimulate("no instance is left to serve anything")
    alike = [other for other in use.instances if other.role is one.role and other.state in ACCEPTING]
    place = sorted(alike, key=lambda other: (other.bound_sessions, other.cache_tokens, other.id)).index(one)
    return PoolChange(role=one.role, drained=place, is_replaced=question.replaced, startup_seconds=startup_seconds)


def _ratio(before: PoolSpec, after: PoolSpec, startup_seconds: float) -> tuple[PoolChange, PoolChange]:
    if RatioMode.AUTO not in (before.ratio.mode, after.ratio.mode):
        raise CannotSimulate("no instance changes its role in either mode")
    return _by_its_rules(before, startup_seconds), _by_its_rules(after, startup_seconds)


def _by_its_rules(spec: PoolSpec, startup_seconds: float) -> PoolChange:
    if spec.ratio.mode is not RatioMode.AUTO and spec.scaling.mode is not ScalingMode.SLO:
        return PoolChange()
    rules = Autoscaled(
        scaling=spec.scaling,
        ratio=spec.ratio,
        min_replicas=min(role.min_replicas for role in spec.roles),
        max_replicas=max(role.max_replicas for role in spec.roles),
        roles=[RoleRange(role=role.name, min_replicas=role.min_replicas, max_replicas=role.max_replicas) for role in spec.roles],
    )
    return PoolChange(autoscaled=rules, startup_seconds=startup_seconds)


def _before(spec: Mapping[str, Any] | None) -> PoolSpec:
    try:
        return parse_spec(spec or {})
    except InvalidInput as error:
        raise CannotSimulate("the present spec is refused, so there is nothing to compare with") from error
