"""The numbers of instances that scaling sets in this round, the records of its decisions, its memory in the status, and
the time of its next comparison. Pure.

`fairlead.scaling` decides. Everything that scaling remembers is in `status.scaling`, so a restart between any two
rounds changes nothing. While the control API does not respond there are no signals, and the numbers stay unchanged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import msgspec

from fairlead.capabilities import NOTHING_KNOWN, EngineCapability, joined
from fairlead.conditions.facts import ScalingFacts
from fairlead.instances import Role
from fairlead.pool_states import PoolObservations
from fairlead.pools import PoolSpec
from fairlead.scaling.bounds import DeclaredRole
from fairlead.scaling.decisions import ScalingDecisionRecord, record
from fairlead.scaling.memory import ScalingMemory, is_plausible
from fairlead.scaling.recommendations import Controller, Verdict
from fairlead.scaling.sizing import Capacity
from fairlead.scaling.specs import RatioMode, ScalingMode
from fairlead.scaling.targets import NONE_STANDING, Declared, RoleTarget, TargetReason, step
from fairlead_operator.merge_patches import drop_nulls
from fairlead_operator.reconciling.roles import WantedReplicas
from fairlead_operator.reconciling.windows import Scheduled

TOLD_SECONDS = 86_400.0
"""Seconds for which a decision stays in the status: a day, long enough for the control API to receive it and for people
to see it.
"""


def read_memory(status: Mapping[str, Any]) -> ScalingMemory:
    """Read scaling's memory from a pool's status; empty if it cannot be read, or cannot have been written by an
    operator.
    """
    try:
        memory = msgspec.convert((status.get("scaling") or {}).get("memory") or {}, ScalingMemory)
    except msgspec.ValidationError:
        return ScalingMemory()
    return memory if is_plausible(memory) else ScalingMemory()


def known_decisions(status: Mapping[str, Any], now: float) -> tuple[ScalingDecisionRecord, ...]:
    """Return the decisions of the last day in a pool's status; unreadable ones are left out."""
    found = []
    for document in (status.get("scaling") or {}).get("decisions") or ():
        try:
            decision = msgspec.convert(document, ScalingDecisionRecord)
        except msgspec.ValidationError:
            continue
        if now - decision.at < TOLD_SECONDS:
            found.append(decision)
    return tuple(found)


def scaling_status(memory: ScalingMemory, decisions: Sequence[ScalingDecisionRecord]) -> dict[str, Any]:
    """Return `status.scaling`, without nulls: a merge patch cannot store them."""
    document: dict[str, Any] = {}
    if memory != ScalingMemory():
        document["memory"] = drop_nulls(msgspec.to_builtins(memory))
    if decisions:
        document["decisions"] = drop_nulls(msgspec.to_builtins(decisions))
    return document


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioStep:
    """A move of one instance between prefill and decode. `before` and `after` have the number of instances of each
    role.
    """

    message: str
    before: dict[str, Any]
    after: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """The result of scaling in one round. `status` is the new `status.scaling`; `due_in` is the time in seconds to the
    next comparison, infinite while nothing is compared.
    """

    wanted: tuple[WantedReplicas, ...]
    facts: ScalingFacts | None
    status: dict[str, Any]
    ratio_step: RatioStep | None
    due_in: float


def scaled(
    spec: PoolSpec | None,
    pool: Mapping[str, Any],
    wanted: tuple[WantedReplicas, ...],
    answer: PoolObservations | None,
    schedules: Scheduled | None,
    now: float,
    standing: Mapping[Role, int] = NONE_STANDING,
) -> Scaled:
    """Turn the declared numbers of instances into the numbers desired now, within the bounds of open windows of
    `schedules`.

    `answer` is the control API's response in this round; None if the API did not respond. `standing` has the present
    numbers of instances of roles whose scaling memory is lost.
    """
    status = pool.get("status") or {}
    if spec is None or schedules is None:
        # What is remembered outlives a spec that cannot be read for a while: the next one goes on from it.
        return Scaled(wanted=wanted, facts=None, status=dict(status.get("scaling") or {}), ratio_step=None, due_in=inf)
    known = NOTHING_KNOWN if answer is None or answer.capability is None else answer.capability
    declared = _declared(spec, wanted, schedules, known)
    before = read_memory(status)
    signals, demand = (answer.signals, answer.demand) if answer is not None else (None, None)
    memory, outcome = step(before, declared, signals, now, demand, standing)
    fresh = [record(found, before, pool["metadata"]["uid"], _mode(found.controller, declared), now) for found in outcome.recommendations]
    decisions = _newest(known_decisions(status, now), fresh)
    return Scaled(
        wanted=tuple(_wanted(item, outcome.of(item.role), decisions) for item in wanted),
        facts=ScalingFacts(
            is_fixed=declared.is_fixed,
            answered=answer is not None,
            targets=outcome.targets,
            measured=outcome.measured,
            is_measured=declared.scaling.mode is ScalingMode.SLO,
            sleeps=_sleeps(declared, outcome.targets),
        ),
        status=scaling_status(memory, decisions),
        ratio_step=_ratio_step(fresh),
        due_in=_due_in(memory, declared, now),
    )


def _declared(spec: PoolSpec, wanted: tuple[WantedReplicas, ...], schedules: Scheduled, known: EngineCapability) -> Declared:
    number = {item.role: item.replicas for item in wanted}
    return Declared(
        roles=tuple(
            DeclaredRole(role=role.name, replicas=number[role.name], min_replicas=role.least, max_replicas=role.most) for role in spec.roles
        ),
        scaling=spec.scaling,
        ratio=schedules.ratio,
        slo=schedules.told.slo,
        capacity=Capacity.of(joined(known, spec.facts().engine.declared)),
        refuses_late=schedules.told.early_rejection.mode != "Disabled",
        windows=tuple(schedules.found.bounds),
        may_sleep=all(role.min_replicas == 0 for role in spec.roles),
    )


def _sleeps(declared: Declared, targets: tuple[RoleTarget, ...]) -> bool:
    """Return whether the pool scales by load and has been scaled to zero, so that the next request starts instances."""
    return declared.scaling.mode is ScalingMode.SLO and all(target.replicas == 0 < target.bounds.upper for target in targets)


def _mode(controller: Controller, declared: Declared) -> str:
    return (declared.ratio.mode if controller is Controller.RATIO else declared.scaling.mode).value


def _newest(known: Iterable[ScalingDecisionRecord], fresh: Iterable[ScalingDecisionRecord]) -> tuple[ScalingDecisionRecord, ...]:
    """Return the newest decision of each controller and role, the oldest decision first."""
    found = {(decision.controller, decision.role): decision for decision in (*known, *fresh)}
    return tuple(sorted(found.values(), key=lambda decision: (decision.at, decision.id)))


def _wanted(item: WantedReplicas, target: RoleTarget, decisions: Sequence[ScalingDecisionRecord]) -> WantedReplicas:
    """Return the role's number of instances in `target`, with the reason for that number. If it is the declared number,
    or the declared number was outside of the role's bounds, the reason of `item` is kept.
    """
    bounds = f"{target.bounds.lower} to {target.bounds.upper}"
    applied = [one.reason for one in decisions if one.verdict is Verdict.APPLIED and item.role in _roles_of(one)]
    match target.reason:
        case TargetReason.DECLARED:
            reason = item.reason
        case TargetReason.ROLE_BOUNDS if item.beyond:
            reason = item.reason
        case _ if applied:  # it names the bounds too, if they cut it short
            reason = applied[-1]
        case TargetReason.SCHEDULE:
            reason = f"schedule {target.schedule} bounds it to {bounds}"
        case TargetReason.ROLE_BOUNDS:
            reason = f"the role's bounds are {bounds}"
        case _:
            reason = f"set by {'the ratio' if target.reason is TargetReason.RATIO else 'scaling'} before"
    return WantedReplicas(role=item.role, replicas=target.replicas, least=target.bounds.lower, reason=reason)


def _roles_of(decision: ScalingDecisionRecord) -> set[Role]:
    return {decision.role} if decision.imbalance is None else {decision.role, decision.imbalance.donor}


def _ratio_step(fresh: Iterable[ScalingDecisionRecord]) -> RatioStep | None:
    for decision in fresh:
        seen = decision.imbalance
        if seen is not None and decision.verdict is Verdict.APPLIED:
            before = {decision.role.value: decision.current, seen.donor.value: seen.donor_replicas}
            after = {decision.role.value: decision.replicas, seen.donor.value: seen.donor_replicas - 1}
            words = ", ".join(f"{role} {number} → {after[role]}" for role, number in sorted(before.items(), reverse=True))
            return RatioStep(message=f"{words} ({decision.reason})", before=before, after=after)
    return None


def _due_in(memory: ScalingMemory, declared: Declared, now: float) -> float:
    """Return the seconds until the next comparison for scaling or for the ratio; infinite if both modes are Fixed."""
    due = []
    if declared.scaling.mode is not ScalingMode.FIXED:
        due += [_left(role.compared_at, declared.scaling.period_seconds, now) for role in memory.roles]
    if declared.ratio.mode is not RatioMode.FIXED:
        due.append(_left(memory.ratio.compared_at, declared.ratio.period_seconds, now))
    return min(due, default=inf)


def _left(compared_at: float | None, period_seconds: float, now: float) -> float:
    """Return the seconds that remain of the period that began with the last comparison. Infinite if there was no
    comparison yet, or if the period is over.
    """
    left = inf if compared_at is None else compared_at + period_seconds - now
    return left if left > 0 else inf
