"""Scaling as the operator does it, in virtual time. `fairlead.scaling` recommends sizes every few seconds, and the
operator's own rule chooses the instances that are removed first.
"""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from fairlead.capabilities import best, declared
from fairlead.draining import by_cost
from fairlead.instances import Role
from fairlead.pool_states import InstanceObservation, PoolObservations
from fairlead.reports.loads import HeldDemand
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.scaling.bounds import DeclaredRole
from fairlead.scaling.memory import ScalingMemory
from fairlead.scaling.recommendations import Recommendation
from fairlead.scaling.signals import PoolDemand
from fairlead.scaling.sizing import Capacity
from fairlead.scaling.specs import RatioMethod, RatioSpec, ScalingSpec
from fairlead.scaling.targets import Declared, ScalingOutcome, step
from fairlead.schemas.shapes import Rule, duration, nested, whole
from fairlead.tables import SloFacts
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.signals import SignalMeter
from fairlead_simulator.simulation.timeline import Flip, ScaleTo


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedScaling:
    """The rules by which a simulated pool is scaled: some sections of a pool's spec, and the delays of a cluster."""

    RULES: ClassVar = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            holds=lambda rules: rules.min_replicas <= rules.max_replicas,
            field="minReplicas",
            message="minReplicas must not be greater than maxReplicas",
        ),
    )

    scaling: ScalingSpec = nested(ScalingSpec, "Same fields as a pool's `spec.scaling`.")
    ratio: RatioSpec = nested(RatioSpec, "Same fields as a pool's `spec.ratio`.")
    min_replicas: int = whole(
        "Minimum number of instances of a role. With 0 and `scaling.mode` SLO, all roles of the pool go to zero together.",
        1,
        maximum=10_000,
    )
    max_replicas: int = whole("Maximum number of instances of a role.", 64, minimum=1, maximum=10_000)
    startup_seconds: float = duration("Time from a pod's creation until it serves.", "30s", minimum=0.0, maximum=86400.0)
    asleep: int = whole("Surplus instances of a role that sleep instead of being deleted, as `roles[].warm.asleep`.", 0, maximum=10_000)
    wake_seconds: float = duration("Time from the decision to wake an instance until it serves.", "5s", minimum=0.0, maximum=3600.0)
    round_seconds: float = duration("Time from one round of the operator to the next.", "5s", minimum=1.0, maximum=3600.0)

    def range_of(self, role: Role) -> tuple[int, int]:
        """Return the minimum and the maximum number of instances with this role."""
        return self.min_replicas, self.max_replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingByRole(SimulatedScaling):
    """Scaling rules whose minimum and maximum numbers of instances differ by role, as in a pool's spec. (A file of
    scaling rules has the same numbers for all roles.)
    """

    ranges: Mapping[Role, tuple[int, int]]

    def range_of(self, role: Role) -> tuple[int, int]:
        return self.ranges.get(role, (self.min_replicas, self.max_replicas))


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeChange:
    """A change, at `at` seconds, of a role's wanted number of instances to `replicas`."""

    at: float
    role: Role
    replicas: int


class Autoscaler:
    """The autoscaler of a run. `changes` and `recommendations` are its history in order of time."""

    def __init__(self, pool: SimulatedPool, rules: SimulatedScaling) -> None:
        self.meter = SignalMeter(pool)
        self.changes: list[SizeChange] = []
        self.recommendations: list[tuple[float, Recommendation]] = []
        self._rules = rules
        self._memory = ScalingMemory()
        self._due_at = rules.round_seconds
        numbers = (
            {Role.BOTH: pool.instances} if pool.instances else {Role.PREFILL: pool.prefill_instances, Role.DECODE: pool.decode_instances}
        )
        self._sizes = numbers
        self._declared = Declared(
            roles=tuple(
                DeclaredRole(
                    role=role,
                    replicas=number,
                    min_replicas=max(rules.range_of(role)[0], 0 if role is Role.BOTH else 1),
                    max_replicas=rules.range_of(role)[1],
                )
                for role, number in numbers.items()
            ),
            scaling=rules.scaling,
            ratio=rules.ratio,
            slo=SloFacts(ttft_seconds=pool.slo_ttft_seconds, tpot_seconds=pool.slo_tpot_seconds),
            capacity=Capacity(prefill_speed=declared(pool.prefill_tokens_per_second), kv_cache_tokens=pool.preset.kv_tokens),
            refuses_late=pool.early_rejection != "Disabled",
            may_sleep=all(rules.range_of(role)[0] == 0 for role in numbers),
        )
        self._used_at = 0.0

    def second(self, loads: Sequence[InstanceLoad], held: HeldDemand, in_flight: int, now: float) -> tuple[ScaleTo | Flip, ...]:
        """Take a sample of the pool; call this about once a second. Return the changes to make; empty if no scaling
        round is due.

        A round is due after every `round_seconds`, and at once if requests are held because the pool has no instances.
        `in_flight` is the number of requests that are not held.
        """
        self.meter.sample(loads, now)
        if held.requests or in_flight:
            self._used_at = now
        is_woken = bool(held.requests) and not any(self._sizes.values())
        if now < self._due_at and not is_woken:
            return ()
        self._due_at = now + self._rules.round_seconds
        demand = PoolDemand(
            held_requests=held.requests, held_prompt_tokens=held.prompt_tokens, in_flight=in_flight, idle_seconds=now - self._used_at
        )
        speed = best(self.meter.prefill_figure(now), self._declared.capacity.prefill_speed)
        known = replace(self._declared, capacity=replace(self._declared.capacity, prefill_speed=speed))
        self._memory, outcome = step(self._memory, known, self.meter.signals(loads, now), now, demand)
        self.recommendations += [(now, one) for one in outcome.recommendations]
        return self._events(outcome, now)

    def _events(self, outcome: ScalingOutcome, now: float) -> tuple[ScaleTo | Flip, ...]:
        before, self._sizes = self._sizes, {target.role: target.replicas for target in outcome.targets}
        changed = {role: number - before[role] for role, number in self._sizes.items() if number != before[role]}
        self.changes += [SizeChange(at=now, role=role, replicas=self._sizes[role]) for role in changed]
        givers = [role for role, change in changed.items() if change < 0]
        takers = [role for role, change in changed.items() if change > 0]
        events: list[ScaleTo | Flip] = []
        if givers and takers and self._rules.ratio.method is RatioMethod.ROLE_FLIP:
            giver, taker = givers[0], takers[0]
            events += [Flip(at=now, source=giver, target=taker)] * min(-changed[giver], changed[taker])
        events += [self._scaled(role, now) for role in changed]
        return tuple(events)

    def _scaled(self, role: Role, now: float) -> ScaleTo:
        rules = self._rules
        return ScaleTo(
            at=now,
            instances=self._sizes[role],
            role=role,
            startup_seconds=rules.startup_seconds,
            asleep=rules.asleep,
            wake_seconds=rules.wake_seconds,
            victims="cheapest",
        )


def cheapest_first(scheduler: PoolScheduler, sessions: Collection[str], names: Sequence[str]) -> list[str]:
    """Return the instances `names` sorted by the cost of draining them, lowest first. `sessions` must include all
    sessions that the router knows.
    """
    contexts: dict[str, list[int]] = {}
    for session in sessions:
        binding = scheduler.binding(session)
        if binding is not None and binding.instance is not None:
            contexts.setdefault(binding.instance, []).append(binding.context_tokens)
    observed = PoolObservations(
        table_version=scheduler.table.version,
        table_acknowledged=True,
        live_routers=1,
        ttft_attainment=None,
        requests_per_second=0.0,
        instances=tuple(
            InstanceObservation(
                id=one.instance,
                in_flight=one.in_flight,
                bound_sessions=len(contexts.get(one.instance, ())),
                cache_tokens=sum(contexts.get(one.instance, ())),
                acknowledged=True,
            )
            for one in scheduler.in_flight()
        ),
    )
    return [name for _, name in by_cost(names, observed, scheduler.prefill_speed)]
