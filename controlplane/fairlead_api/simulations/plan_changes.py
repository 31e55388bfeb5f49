"""Turns a planned change into the runs that show its effect: the pool as it is and as planned, under two seeds, and as
planned at two other rates. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead.pools import TableFacts
from fairlead_api.plans.evidence import PoolUse
from fairlead_api.plans.questions import CannotSimulate, Present, Question
from fairlead_client.simulation_jobs import JobRun, PoolChange

SEEDS = (0, 1)
"""Random seeds, each of which is simulated. If their results differ too much, the effect is unknown."""
RATES = (0.8, 1.25)
"""Factors of the request rate at which the planned pool is also simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The simulation of a plan: the starting `instances` of each role, their `weights`, and the change in both
    versions.
    """

    facts: TableFacts
    instances: Mapping[Role, int]
    weights: Sequence[float]
    as_it_is: PoolChange
    as_planned: PoolChange

    @property
    def runs(self) -> list[JobRun]:
        """Return the runs of a plan: for each seed without and then with the change; then with the change at other
        rates.
        """
        routing = self.facts.routing
        changes = [(seed, 1.0, change) for seed in SEEDS for change in (self.as_it_is, self.as_planned)]
        changes += [(SEEDS[0], rate, self.as_planned) for rate in RATES]
        return [
            JobRun(number=number, policy=routing.policy, parameters=dict(routing.parameters), rate=rate, seed=seed, change=change)
            for number, (seed, rate, change) in enumerate(changes)
        ]


def trial_of(question: Question, spec: Mapping[str, Any] | None, use: PoolUse, startup_seconds: float) -> Trial:
    """Return the simulation of a plan for a pool in use. `spec` is the object's spec before the change if the object is
    a pool, otherwise None.

    Raises CannotSimulate.
    """
    counted = {role: sum(one.role is role and one.state in ACCEPTING for one in use.instances) for role in Role}
    serving = {role: number for role, number in counted.items() if number}
    tried = question.tried(Present(spec=spec, use=use, instances=serving, startup_seconds=startup_seconds))
    instances = {**serving, **tried.instances}
    if not instances:
        raise CannotSimulate("no instance serves now")
    computing = [one for one in use.instances if one.state in ACCEPTING and one.role is not Role.DECODE]
    weights = [1.0 if one.state is InstanceState.WARMING else one.weight for one in computing]
    return Trial(facts=use.facts, instances=instances, weights=weights, as_it_is=tried.as_it_is, as_planned=tried.as_planned)
