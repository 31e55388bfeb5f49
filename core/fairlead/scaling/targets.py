"""The pipeline for the desired number of a role: declared → needed for the SLO → ratio → bounds.

`step` is called once a round. It is pure: all state is in the memory that it takes and returns, so a restart, a missed
round or a repeated round changes nothing. In mode Fixed the number is the declared number plus the ratio controller's
moves; in mode SLO it continues from the last number. After a change of the declared number, both modes start again from
the declared number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from fairlead.instances import Role
from fairlead.scaling.bounds import BoundsInForce, DeclaredRole, RoleBounds, bounds_in_force
from fairlead.scaling.memory import RatioMemory, RoleMemory, ScalingMemory, rebuilt, rewound, with_step
from fairlead.scaling.overload import DECODE_LIMIT, Demand
from fairlead.scaling.ratio import Move, RoleShare, compare, moved
from fairlead.scaling.recommendations import (
    Cause,
    Controller,
    Hold,
    Imbalance,
    Recommendation,
    Verdict,
    advised_number,
    is_held,
    receiver_of,
    stands,
)
from fairlead.scaling.signals import PoolDemand, PoolSignals, RoleSignals
from fairlead.scaling.sizing import Capacity, decode_work, need, prefill_work, running_decode_work, whole_instances
from fairlead.scaling.specs import RatioMode, RatioSpec, ScalingMode, ScalingSpec
from fairlead.scaling.stabilization import is_due, next_replicas, remembered, stable_number, steps_kept_seconds
from fairlead.scaling.zero import is_at_zero, may_be_zero, stepped, was_at_zero
from fairlead.tables import SloFacts

NONE_STANDING: Mapping[Role, int] = MappingProxyType({})
STALE_SECONDS = 60.0
"""Signals older than this are treated as missing."""
TOLD_AGAIN_SECONDS = 1800.0
"""Interval, in seconds, at which a recommendation that people are shown and that is still valid is recorded again. So
people can distinguish it from a recommendation of an operator that stopped.
"""


class TargetReason(StrEnum):
    """The step of the pipeline that set a role's number."""

    DECLARED = "Declared"
    SLO = "SLO"
    RATIO = "Ratio"
    SCHEDULE = "Schedule"
    ROLE_BOUNDS = "RoleBounds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The declared numbers and modes of a pool, as in force now.

    Schedules may have overridden `slo` and `ratio`. The bounds of their open windows are in `windows`; of several
    windows for a role, the last one decides.
    """

    roles: tuple[DeclaredRole, ...]
    scaling: ScalingSpec
    ratio: RatioSpec
    slo: SloFacts
    capacity: Capacity
    refuses_late: bool = False
    """Whether early rejection refuses requests that are predicted to miss `slo.ttft`."""
    windows: tuple[RoleBounds, ...] = ()
    may_sleep: bool = False
    """Whether every role declares a minimum of 0, so that the whole pool may go to zero."""

    @property
    def is_fixed(self) -> bool:
        """Whether only declarations and bounds set the numbers."""
        return self.scaling.mode is ScalingMode.FIXED and self.ratio.mode is RatioMode.FIXED


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleTarget:
    """The number of instances that a role should have now.

    `wanted` is the number before the bounds; `schedule` names the window whose bound changed it, if one did.
    """

    role: Role
    replicas: int
    reason: TargetReason
    declared: int
    wanted: int
    bounds: BoundsInForce
    schedule: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingOutcome:
    """The targets in the declared order of roles, and the recommendations that differ from the last recommendations.
    `measured` are the roles with fresh signals.
    """

    targets: tuple[RoleTarget, ...]
    recommendations: tuple[Recommendation, ...]
    measured: frozenset[Role]

    def of(self, role: Role) -> RoleTarget:
        """Return the target of a declared role. Raises StopIteration for a role that is not declared."""
        return next(target for target in self.targets if target.role is role)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """The values that are constant within a round. Dictionaries are by role."""

    declared: Declared
    bounds: Mapping[Role, BoundsInForce]
    signals: Mapping[Role, RoleSignals]
    window_seconds: float
    now: float


def step(
    memory: ScalingMemory,
    declared: Declared,
    signals: PoolSignals | None,
    now: float,
    demand: PoolDemand | None = None,
    standing: Mapping[Role, int] = NONE_STANDING,
) -> tuple[ScalingMemory, ScalingOutcome]:
    """Compute one round at `now` (Unix seconds). Return the memory to keep, and the outcome: the targets, and the
    recommendations to record.

    If signals are None, stale or without a role's figures, only declarations and bounds change that role's number.
    While both sections have mode Fixed the memory is empty. `demand` decides scaling to zero and from zero; None = not
    known, which leaves a pool as it is. `standing` has the current numbers of roles whose memory was lost.
    """
    fresh = signals is not None and signals.age_seconds <= STALE_SECONDS
    this = _Round(
        declared=declared,
        bounds={role.role: bounds_in_force(role, declared.windows) for role in declared.roles},
        signals={one.role: one for one in signals.roles} if signals is not None and fresh else {},
        window_seconds=signals.window_seconds if signals is not None else 0.0,
        now=now,
    )
    numbers = {role.role: role.replicas for role in declared.roles}
    memory = rewound(rebuilt(memory, numbers, standing, now), now)
    ratio = _ratio_memory(memory, declared)
    may_sleep = may_be_zero(declared.may_sleep, this.bounds)
    stays_at_zero = may_sleep and was_at_zero(memory, numbers)
    begun = {role.role: _begun(memory, role, ratio, this, stays_at_zero) for role in declared.roles}
    moves: list[Recommendation] = []
    at_zero = stepped(begun, this.bounds, demand, declared.scaling, declared.capacity, now, may_sleep=may_sleep)
    if at_zero is not None:
        roles, told = at_zero
    else:
        roles, told = _sized(begun, this)
        roles, ratio, moves = _balanced(begun, roles, ratio, this)
    targets = tuple(_target(role, roles[role.role], ratio, this) for role in declared.roles)
    kept = ScalingMemory() if declared.is_fixed else ScalingMemory(roles=tuple(roles.values()), ratio=ratio)
    return kept, ScalingOutcome(targets=targets, recommendations=(*told, *moves), measured=_measured(this, roles, demand))


def _measured(this: _Round, roles: Mapping[Role, RoleMemory], demand: PoolDemand | None) -> frozenset[Role]:
    """Return the roles whose numbers follow from fresh signals; for a pool at zero, from requests held by routers."""
    return frozenset(roles) if demand is not None and is_at_zero(roles) else frozenset(this.signals)


def _ratio_memory(memory: ScalingMemory, declared: Declared) -> RatioMemory:
    """Return the memory of the ratio controller. Its moves are dropped if the mode or the declaration changed."""
    ratio = memory.ratio
    if declared.ratio.mode is RatioMode.FIXED:
        return RatioMemory()
    before = {role.role: role.declared for role in memory.roles}
    as_declared = all(before.get(role.role, role.replicas) == role.replicas for role in declared.roles)
    return ratio if as_declared and declared.ratio.mode is RatioMode.AUTO else replace(ratio, shift=0)


def _shift(role: Role, ratio: RatioMemory) -> int:
    return ratio.shift if role is Role.PREFILL else -ratio.shift if role is Role.DECODE else 0


def _begun(memory: ScalingMemory, role: DeclaredRole, ratio: RatioMemory, this: _Round, stays_at_zero: bool) -> RoleMemory:
    """Return the role's memory at the beginning of the round: its last number under the present declaration and
    bounds.
    """
    old, spec = memory.of(role.role), this.declared.scaling
    if old is None or old.declared != role.replicas:
        # What people are shown is remembered, so that it can be taken back.
        told = old.told if old is not None and stands(old.told) else ""
        old = RoleMemory(role=role.role, declared=role.replicas, replicas=role.replicas, told=told)
    number = old.replicas if spec.mode is ScalingMode.SLO else role.replicas + _shift(role.role, ratio)
    if not (stays_at_zero and spec.mode is ScalingMode.SLO):
        number = this.bounds[role.role].clamp(number)
    if spec.mode is ScalingMode.FIXED:
        return RoleMemory(role=role.role, declared=role.replicas, replicas=number)
    return with_step(old, number, this.now, steps_kept_seconds(spec))


def _sized(begun: Mapping[Role, RoleMemory], this: _Round) -> tuple[dict[Role, RoleMemory], list[Recommendation]]:
    roles, told = dict(begun), []
    if this.declared.scaling.mode is not ScalingMode.FIXED:
        for role, one in begun.items():
            declared = this.declared
            roles[role], found = sized(
                one,
                this.bounds[role],
                this.signals.get(role),
                declared.scaling,
                declared.slo,
                declared.capacity,
                this.now,
                refuses_late=declared.refuses_late,
            )
            told += [] if found is None else [found]
    return roles, told


def _balanced(
    begun: Mapping[Role, RoleMemory], roles: dict[Role, RoleMemory], ratio: RatioMemory, this: _Round
) -> tuple[dict[Role, RoleMemory], RatioMemory, list[Recommendation]]:
    spec = this.declared.ratio
    if spec.mode is RatioMode.FIXED or not {Role.PREFILL, Role.DECODE} <= roles.keys() & this.signals.keys():
        return roles, ratio, []
    shares = {role: _share(role, begun, this) for role in (Role.PREFILL, Role.DECODE)}
    before = ratio
    ratio, move = compare(ratio, shares, _demand(this), spec, this.now)
    if ratio.compared_at == before.compared_at:
        return roles, ratio, []
    told = _taken_back(ratio, move, begun, this)
    if move is None:
        return roles, replace(ratio, told=""), told
    current = begun[move.receiver].replicas
    is_made = move.hold is None and spec.mode is RatioMode.AUTO
    found = Recommendation(
        controller=Controller.RATIO,
        role=move.receiver,
        current=current,
        recommended=current + 1,
        replicas=current if move.hold else current + 1,
        verdict=Verdict.APPLIED if is_made else Verdict.HELD if spec.mode is RatioMode.AUTO else Verdict.ADVISED,
        cause=move.cause,
        hold=move.hold,
        bounds=this.bounds[move.receiver],
        imbalance=move.imbalance,
        signals=(this.signals[move.receiver], this.signals[move.imbalance.donor]),
    )
    if found.line != ratio.told or _is_due_again(found.line, before.compared_at, this.now):
        told.append(found)
    ratio = replace(ratio, told=found.line)
    if is_made:
        ratio = moved(ratio, move.receiver, this.now)
        kept, donor = steps_kept_seconds(this.declared.scaling), move.imbalance.donor
        most = max(roles[move.receiver].replicas, current + 1)
        roles = roles | {
            move.receiver: with_step(roles[move.receiver], most, this.now, kept),
            donor: with_step(roles[donor], begun[donor].replicas - 1, this.now, kept),
        }
    return roles, ratio, told


def _taken_back(ratio: RatioMemory, move: Move | None, begun: Mapping[Role, RoleMemory], this: _Round) -> list[Recommendation]:
    """Return a recommendation of the present split, if people were shown a move to a role and this comparison no longer
    calls for that move. The list is empty otherwise.
    """
    receiver = receiver_of(ratio.told) if stands(ratio.told) else None
    if receiver is None or (move is not None and move.receiver is receiver):
        return []
    donor = Role.DECODE if receiver is Role.PREFILL else Role.PREFILL
    current = begun[receiver].replicas
    found = Recommendation(
        controller=Controller.RATIO,
        role=receiver,
        current=current,
        recommended=current,
        replicas=current,
        verdict=Verdict.HELD if this.declared.ratio.mode is RatioMode.AUTO else Verdict.ADVISED,
        cause=Cause.LOADS_APART,
        hold=None,
        bounds=this.bounds[receiver],
        imbalance=Imbalance(
            prefill_load=ratio.prefill_load or 0.0,
            decode_load=ratio.decode_load or 0.0,
            comparisons=0,
            donor=donor,
            donor_replicas=begun[donor].replicas,
        ),
        signals=(this.signals[receiver], this.signals[donor]),
    )
    return [found]


def _demand(this: _Round) -> Demand:
    seen = this.signals[Role.PREFILL]
    return Demand(
        requests_per_second=seen.requests_per_second,
        prompt_variation=seen.prompt_variation,
        refuses_late=this.declared.refuses_late,
        window_seconds=this.window_seconds,
    )


def _share(role: Role, begun: Mapping[Role, RoleMemory], this: _Round) -> RoleShare:
    signals, bounds, declared = this.signals[role], this.bounds[role], this.declared
    if role is Role.PREFILL:
        load, work = signals.prefill_load, prefill_work(signals, declared.slo, declared.capacity)
    else:
        known = (of(signals, declared.slo, declared.capacity, DECODE_LIMIT) for of in (decode_work, running_decode_work))
        load, work = signals.decode_load, max((one for one in known if one is not None), default=None)
    if not signals.knows_work:
        work = None
    least = bounds.lower
    if declared.scaling.mode is ScalingMode.SLO:
        # What the SLO needs is not given away: it would be added again.
        needed = need(signals, declared.slo, declared.capacity, declared.scaling, refuses_late=declared.refuses_late)
        least = max(least, whole_instances(needed.instances or 0.0))
    return RoleShare(replicas=begun[role].replicas, serving=signals.serving, least=least, most=bounds.upper, load=load, work=work)


def _target(role: DeclaredRole, found: RoleMemory, ratio: RatioMemory, this: _Round) -> RoleTarget:
    bounds, reason = this.bounds[role.role], TargetReason.DECLARED
    wanted = role.replicas + _shift(role.role, ratio)
    if this.declared.scaling.mode is ScalingMode.SLO:
        if found.highest:
            reason, wanted = TargetReason.SLO, found.highest[-1].replicas
    elif wanted != role.replicas:
        reason = TargetReason.RATIO
    schedule = None
    if found.replicas == bounds.clamp(wanted) != wanted:
        schedule = bounds.set_by(wanted)
        reason = TargetReason.ROLE_BOUNDS if schedule is None else TargetReason.SCHEDULE
    return RoleTarget(
        role=role.role,
        replicas=found.replicas,
        reason=reason,
        declared=role.replicas,
        wanted=wanted,
        bounds=bounds,
        schedule=schedule,
    )


def sized(
    role: RoleMemory,
    bounds: BoundsInForce,
    signals: RoleSignals | None,
    spec: ScalingSpec,
    slo: SloFacts,
    capacity: Capacity,
    now: float,
    *,
    refuses_late: bool = False,
) -> tuple[RoleMemory, Recommendation | None]:
    """Return the role's memory after this round, and the recommendation if it must be recorded, else None. It must be
    recorded in three cases: it differs from the last recommendation, it is due to be recorded again, or it is the
    present number after people were shown another number.

    Between two comparisons, and without measurements, the memory is returned unchanged. In mode Advise the role keeps
    its number, and the advised number is stabilized in the same way as the role's number in mode SLO.
    """
    if signals is None or not is_due(role.compared_at, now, spec.period_seconds):
        return role, None
    needed = need(signals, slo, capacity, spec, refuses_late=refuses_late)
    if needed.instances is None:
        return role, None
    recommended, missed = _recommended(role.replicas, needed.instances, signals, slo, spec)
    compared_at = role.compared_at
    role = remembered(role, role.replicas if missed else recommended, spec, now)
    if spec.mode is ScalingMode.ADVISE and not missed:
        recommended = stable_number(role, advised_number(role.told, role.replicas), recommended)
    replicas = role.replicas
    hold: Hold | None = None if recommended == replicas else Hold.SLO_MISSED if missed else Hold.AT_BOUND
    if not missed and bounds.clamp(recommended) != role.replicas:
        allowed, hold = next_replicas(role, recommended, spec, now)
        replicas = bounds.clamp(allowed)
        hold = hold if replicas == allowed else Hold.AT_BOUND
    recommendation = Recommendation(
        controller=Controller.SCALING,
        role=role.role,
        current=role.replicas,
        recommended=recommended,
        replicas=replicas,
        verdict=_verdict(spec.mode, role.replicas, replicas),
        cause=needed.cause,
        hold=hold,
        bounds=bounds,
        need=needed,
        signals=(signals,),
    )
    if recommended == role.replicas:
        is_kept = is_held(role.told) and not _begins_half_hour(compared_at, now)
        return replace(role, told=role.told if is_kept else ""), recommendation if stands(role.told) else None
    is_news = recommendation.line != role.told or _is_due_again(recommendation.line, compared_at, now)
    role = replace(role, told=recommendation.line)
    if spec.mode is ScalingMode.SLO:
        role = with_step(role, replicas, now, steps_kept_seconds(spec))
    return role, recommendation if is_news else None


def _is_due_again(line: str, before: float | None, now: float) -> bool:
    """Return whether a recommendation that stands is recorded again, because a half hour began since `before`."""
    return stands(line) and _begins_half_hour(before, now)


def _begins_half_hour(before: float | None, now: float) -> bool:
    return before is not None and before // TOLD_AGAIN_SECONDS != now // TOLD_AGAIN_SECONDS


def _recommended(current: int, needed: float, signals: RoleSignals, slo: SloFacts, spec: ScalingSpec) -> tuple[int, bool]:
    """Return the recommended number, and whether it is lower than the present number while requests miss the SLO. While
    most running requests are still unfinished, the recommended number is at least the smaller of two numbers: the
    present number of instances, and the number of requests in flight.
    """
    if needed < current and signals.is_mostly_unfinished:
        needed = max(needed, float(min(current, signals.in_flight)))
    if abs(needed - current) <= spec.tolerance * current:
        return current, False
    recommended = max(1, whole_instances(needed))
    attained = min((share for share in (signals.ttft_attainment, signals.tpot_attainment) if share is not None), default=1.0)
    return recommended, recommended < current and attained * 100 < slo.percentile


def _verdict(mode: ScalingMode, before: int, after: int) -> Verdict:
    if mode is ScalingMode.ADVISE:
        return Verdict.ADVISED
    return Verdict.HELD if before == after else Verdict.APPLIED
