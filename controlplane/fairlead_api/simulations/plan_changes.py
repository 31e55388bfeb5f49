"""Turns a planned change into the simulation runs that show its effect: without and with the change, each under two
seeds, and with the change at two other request rates. Pure.
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
"""The random seeds under which each change is simulated. If the results of the seeds differ too much, the effect is
unknown.
"""
RATES = (0.8, 1.25)
"""Factors of the recorded request rate at which the pool with the change is also simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The simulation of a plan. `instances` is the number of instances of each role at the start. `as_it_is` and
    `as_planned` say how the simulated pool differs from the present pool without and with the plan.
    """

    facts: TableFacts
    instances: Mapping[Role, int]
    weights: Sequence[float]
    as_it_is: PoolChange
    as_planned: PoolChange

    @property
    def runs(self) -> list[JobRun]:
        """The runs of the simulation: for each seed first without and then with the change; last, with the change at
        other request rates.
        """
        routing = self.facts.routing
        changes = [(seed, 1.0, change) for seed in SEEDS for change in (self.as_it_is, self.as_planned)]
        changes += [(SEEDS[0], rate, self.as_planned) for rate in RATES]
        return [
            JobRun(number=number, policy=routing.policy, parameters=dict(routing.parameters), rate=rate, seed=seed, change=change)
            for number, (seed, rate, change) in enumerate(changes)
        ]


def trial_of(question: Question, spec: Mapping[str, Any] | None, use: PoolUse, startup_seconds: float) -> Trial:
    """Return the simulation of a plan for a pool with the present state `use`. `spec` is the pool's spec before the
    change, None if the plan changes another object than the pool.

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
