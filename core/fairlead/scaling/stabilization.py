"""Turns recommendations into steps: stabilisation windows, limits per period and cooldowns, as in autoscaling/v2.

Within a window the lowest recommendation counts for growing and the highest for shrinking. After a gap in the
comparisons (missing signals, a stopped operator, a clock set forward or back), both windows restart with the present
number, as an HPA's windows do when its controller starts.
"""

from dataclasses import replace
from math import ceil, floor

from fairlead.scaling.memory import Recommended, RoleMemory, Step
from fairlead.scaling.recommendations import Hold
from fairlead.scaling.specs import ScaleDownSpec, ScaleUpSpec, ScalingMode, ScalingSpec

GAP_PERIODS = 4
"""Number of periods without a comparison after which the windows restart."""

_LEAST_GAP_SECONDS = 60.0
_ROUNDING = 1e-9


def is_due(compared_at: float | None, now: float, period_seconds: float) -> bool:
    """Return whether the next comparison is due, because a period has passed or the clock was set back."""
    return compared_at is None or not 0 <= now - compared_at < period_seconds


def is_interrupted(compared_at: float | None, now: float, period_seconds: float) -> bool:
    """Return whether the comparisons were interrupted. This is the case if there was no comparison before, if the last
    comparison is more than `GAP_PERIODS` periods ago, or if the clock was set back.
    """
    gap = max(_LEAST_GAP_SECONDS, GAP_PERIODS * period_seconds)
    return compared_at is None or not 0 <= now - compared_at <= gap


def remembered(role: RoleMemory, recommended: int, spec: ScalingSpec, now: float) -> RoleMemory:
    """Return the role's memory with this recommendation added."""
    highest, lowest = role.highest, role.lowest
    if is_interrupted(role.compared_at, now, spec.period_seconds):
        highest = lowest = (Recommended(replicas=role.replicas, at=now),)
    one = Recommended(replicas=recommended, at=now)
    up, down = now - spec.scale_up.stabilization_window_seconds, now - spec.scale_down.stabilization_window_seconds
    return replace(
        role,
        compared_at=now,
        highest=(*(old for old in highest if old.replicas > recommended and old.at >= down), one),
        lowest=(*(old for old in lowest if old.replicas < recommended and old.at >= up), one),
    )


def next_replicas(role: RoleMemory, recommended: int, spec: ScalingSpec, now: float) -> tuple[int, Hold | None]:
    """Return the number of instances that the role may have now, and the reason if this number is not `recommended`
    (None otherwise). The recommendation must already be in the memory.
    """
    current = role.replicas
    if recommended == current:
        return current, None
    # In mode Advise the recommended number is stable by itself.
    stable = recommended if spec.mode is ScalingMode.ADVISE else stable_number(role, current, recommended)
    if stable == current:
        return current, Hold.STABILIZING
    rules = spec.scale_up if stable > current else spec.scale_down
    last = max((step.at for step in role.steps), default=role.rebuilt_at)
    if last is not None and now - last < rules.cooldown_seconds:
        return current, Hold.COOLDOWN
    if role.rebuilt_at is not None and now - role.rebuilt_at < rules.period_seconds:
        return current, Hold.STEP_LIMIT
    limit = _limit(role, rules, now)
    allowed = min(stable, limit) if stable > current else max(stable, limit)
    if allowed != stable:
        return allowed, Hold.STEP_LIMIT
    return allowed, None if stable == recommended else Hold.STABILIZING


def stable_number(role: RoleMemory, present: int, recommended: int) -> int:
    """Return the number that follows the number `present`. It differs from `present` only if all recommendations of the
    window are above `present`, or all are below it.
    """
    low = min((one.replicas for one in role.lowest), default=recommended)
    high = max((one.replicas for one in role.highest), default=recommended)
    return low if low > present else high if high < present else present


def _limit(role: RoleMemory, rules: ScaleUpSpec | ScaleDownSpec, now: float) -> int:
    """Return the largest number of instances that a growing role may reach within this period's limit of steps; for a
    shrinking role, the smallest number. The limit never forces a step in the opposite direction.
    """
    within: list[Step] = [step for step in role.steps if step.at > now - rules.period_seconds]
    begin = role.replicas - sum(step.change for step in within)
    if isinstance(rules, ScaleUpSpec):
        by_percent = ceil(begin * (1 + rules.percent / 100) - _ROUNDING)
        return max(role.replicas, begin + rules.instances, by_percent)
    by_percent = floor(begin * (1 - rules.percent / 100) + _ROUNDING)
    return min(role.replicas, begin - rules.instances, by_percent)


def steps_kept_seconds(spec: ScalingSpec) -> float:
    """Return the seconds for which a past step counts towards the limits."""
    return max(seconds for rules in (spec.scale_up, spec.scale_down) for seconds in (rules.period_seconds, rules.cooldown_seconds))
