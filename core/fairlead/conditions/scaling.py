"""ScalingActive and ScalingLimited, with the words of Kubernetes' HorizontalPodAutoscaler."""

from fairlead.conditions.answers import not_answered_yet
from fairlead.conditions.facts import Condition, ConditionType, PoolFacts, ScalingFacts
from fairlead.instances import Role
from fairlead.scaling.targets import RoleTarget, TargetReason


def scaling_active(facts: PoolFacts) -> Condition:
    """Whether the numbers follow what is measured."""
    kind = ConditionType.SCALING_ACTIVE
    scaling = facts.scaling
    if scaling is None:
        return Condition(type=kind, status="Unknown", reason="NoValidSpec", message="No valid spec was seen yet")
    if scaling.is_fixed:
        return Condition(type=kind, status="False", reason="ScalingDisabled", message="scaling.mode and ratio.mode are Fixed")
    silent = [target.role.value for target in scaling.targets if target.role not in scaling.measured]
    if not silent:
        return Condition(type=kind, status="True", reason="ValidSignalsFound", message="Every role is measured")
    if facts.observations is not None and facts.observations.figures_behind_seconds:
        message = "The control API's roll-ups lag, so nothing is known of the last minutes; the numbers of instances stay as they are"
        return Condition(type=kind, status="False", reason="FiguresBehind", message=message)
    if scaling.answered or facts.api_problem is not None:
        message = f"Nothing fresh is measured of {' and '.join(silent)}; the numbers of instances stay as they are"
        return Condition(type=kind, status="False", reason="NoSignals", message=message)
    return not_answered_yet(kind)


def scaling_limited(facts: PoolFacts) -> Condition:
    """Whether bounds keep a role from its desired number."""
    kind = ConditionType.SCALING_LIMITED
    scaling = facts.scaling
    if scaling is None:
        return Condition(type=kind, status="Unknown", reason="NoValidSpec", message="No valid spec was seen yet")
    limited = _limited(scaling)
    if not limited:
        return Condition(
            type=kind, status="False", reason="DesiredWithinRange", message="No bound keeps a role from its recommended number"
        )
    reason = "TooManyReplicas" if any(target.wanted > target.bounds.upper for target in limited) else "TooFewReplicas"
    return Condition(type=kind, status="True", reason=reason, message="; ".join(_words(target) for target in limited))


def _limited(scaling: ScalingFacts) -> list[RoleTarget]:
    return [target for target in scaling.targets if target.reason in {TargetReason.ROLE_BOUNDS, TargetReason.SCHEDULE}]


def _words(target: RoleTarget) -> str:
    noun = "instances" if target.role is Role.BOTH else f"{target.role} instances"
    by = f"schedule {target.schedule}" if target.schedule is not None else "the role"
    return f"{target.wanted} {noun} are recommended, and {by} allows {target.bounds.lower} to {target.bounds.upper}"
