"""Mode SLO for one role: from its signals to a recommendation, and from that to a step."""

from dataclasses import replace

from fairlead.scaling.bounds import BoundsInForce
from fairlead.scaling.memory import RoleMemory, with_step
from fairlead.scaling.recommendations import Controller, Hold, Recommendation, Verdict
from fairlead.scaling.signals import RoleSignals
from fairlead.scaling.sizing import Capacity, need, whole_instances
from fairlead.scaling.specs import ScalingMode, ScalingSpec
from fairlead.scaling.stabilization import is_due, next_replicas, remembered, steps_kept_seconds
from fairlead.tables import SloFacts


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
    """The role after this round, and what was recommended if it is another number than the present one.

    Between two comparisons, and where nothing is measured, the memory is returned as it is. In mode Advise the role
    keeps its number.
    """
    if signals is None or not is_due(role.compared_at, now, spec.period_seconds):
        return role, None
    needed = need(signals, slo, capacity, spec, refuses_late=refuses_late)
    if needed.instances is None:
        return role, None
    recommended, missed = _recommended(role.replicas, needed.instances, signals, slo, spec)
    role = remembered(role, role.replicas if missed else recommended, spec, now)
    if recommended == role.replicas:
        return replace(role, told=""), None
    replicas = role.replicas
    hold: Hold | None = Hold.SLO_MISSED if missed else Hold.AT_BOUND
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
    is_news = recommendation.line != role.told
    role = replace(role, told=recommendation.line)
    if spec.mode is ScalingMode.SLO:
        role = with_step(role, replicas, now, steps_kept_seconds(spec))
    return role, recommendation if is_news else None


def _recommended(current: int, needed: float, signals: RoleSignals, slo: SloFacts, spec: ScalingSpec) -> tuple[int, bool]:
    """The number recommended, and whether it is fewer instances while requests miss the SLO."""
    if abs(needed - current) <= spec.tolerance * current:
        return current, False
    recommended = max(1, whole_instances(needed))
    attained = min((share for share in (signals.ttft_attainment, signals.tpot_attainment) if share is not None), default=1.0)
    return recommended, recommended < current and attained * 100 < slo.percentile


def _verdict(mode: ScalingMode, before: int, after: int) -> Verdict:
    if mode is ScalingMode.ADVISE:
        return Verdict.ADVISED
    return Verdict.HELD if before == after else Verdict.APPLIED
