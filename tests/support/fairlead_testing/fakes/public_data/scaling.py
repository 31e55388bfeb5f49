"""Made-up scaling decisions."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from fairlead.instances import Role
from fairlead.scaling.recommendations import Cause, Controller, Hold, Imbalance, Verdict
from fairlead_client.resources.scaling import ScalingDecisionItem
from fairlead_testing.builders.scaling import a_scaling_decision, role_signals
from fairlead_testing.fakes.public_data.loads import CHAT, CODE


def scaling_decisions(now: datetime) -> list[ScalingDecisionItem]:
    """Return scaling decisions, newest first: a held one, an applied one, an advised one, and a move between roles."""
    held = a_scaling_decision("scale-4", 0.0, current=4, recommended=2, replicas=4, verdict=Verdict.HELD, hold=Hold.STABILIZING)
    queue = a_scaling_decision("scale-3", 0.0, cause=Cause.QUEUE, lower=2, lower_by="office-hours")
    advised = a_scaling_decision("scale-2", 0.0, mode="Advise", verdict=Verdict.ADVISED, role=Role.DECODE)
    moved = a_scaling_decision(
        "scale-1",
        0.0,
        controller=Controller.RATIO,
        role=Role.PREFILL,
        mode="Auto",
        current=4,
        recommended=5,
        replicas=5,
        cause=Cause.LOADS_APART,
        need=None,
        imbalance=Imbalance(prefill_load=1.21, decode_load=0.35, comparisons=3, donor=Role.DECODE, donor_replicas=4),
        signals=(role_signals(Role.PREFILL), role_signals(Role.DECODE)),
    )
    pools = ((held, CHAT), (queue, CHAT), (advised, CODE), (moved, CODE))
    return [
        ScalingDecisionItem(
            **{**{name: getattr(one, name) for name in asdict(one)}, "at": now.astimezone(UTC) - timedelta(minutes=4 * back + 2)}, pool=pool
        )
        for back, (one, pool) in enumerate(pools)
    ]
