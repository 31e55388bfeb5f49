"""Describes a pool's health with one word and one level, judged by the pool's own objectives.

A ready pool that responds too late is not healthy. Pure.
"""

from dataclasses import dataclass

from fairlead.conditions.readiness import SCALED_TO_ZERO, UNTIL_A_REQUEST
from fairlead.pool_states import INSTANCES_STARTING
from fairlead.tables import meets
from fairlead_client.resources.pools import PoolCondition, PoolSummary

_GOOD_WHEN_FALSE = frozenset({"Degraded", "MigrationsPaused", "Progressing", "ScalingLimited"})
_NOTICES = frozenset({"ForecastHolds", "GatewayReady", "HasDevices", "MigrationsPaused", "Progressing", "ScalingActive", "ScalingLimited"})
"""Conditions that never raise an alarm: whatever their status, the desired instances still serve the routers'
clients.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A pool's health. `level` is good, warn or bad; `words` are the text of a badge."""

    level: str
    words: str


def in_time(pool: PoolSummary) -> float | None:
    """Return the share of requests within the pool's objectives: by TTFT and TPOT, or by TTFT alone if no request has
    been judged yet. None without traffic.
    """
    return pool.attainment if pool.slo_attainment is None else pool.slo_attainment


def out_of_slo(pool: PoolSummary) -> bool:
    """Return whether the share of requests within the objectives is below the pool's percentile; False without
    traffic.
    """
    share = in_time(pool)
    return share is not None and not meets(share, pool.slo_percentile)


def health_of(pool: PoolSummary) -> Health:
    """Return the pool's health. A ready pool within its SLO is good. A pool whose only problem is that instances are
    starting, or a ready pool without current figures, gets a warning.
    """
    late = out_of_slo(pool)
    if pool.ready and pool.figures_behind_seconds:
        return Health(level="warn", words="ready, figures behind")
    if pool.ready and pool.ready_reason == SCALED_TO_ZERO:
        wakes = pool.ready_message.endswith(UNTIL_A_REQUEST)
        return Health(level="good", words="asleep, wakes with the next request" if wakes else "at zero, as declared")
    if pool.ready:
        return Health(level="bad", words="ready, out of SLO") if late else Health(level="good", words="ready")
    if pool.ready_reason == INSTANCES_STARTING:
        words = f"starting, {pool.serving} of {pool.desired} serve"
        return Health(level="bad", words=f"{words}, out of SLO") if late else Health(level="warn", words=words)
    return Health(level="bad", words=f"{pool.ready_reason}, out of SLO" if late else pool.ready_reason)


def condition_level(condition: PoolCondition) -> str:
    """Return the level of the mark beside a condition.

    An unknown condition, and disabled scaling, count as neither good nor bad; a condition in progress is a notice.
    """
    if condition.status not in ("True", "False") or condition.reason == "ScalingDisabled":
        return "plain"
    good = "False" if condition.type in _GOOD_WHEN_FALSE else "True"
    if condition.status == good:
        return "warn" if condition.type == "Progressing" and condition.reason != "Settled" else "good"
    return "warn" if condition.type in _NOTICES or condition.reason in (INSTANCES_STARTING, "WaitingForRouters") else "bad"


def pain(pool: PoolSummary) -> tuple[int, float, str]:
    """Return a sort key that puts the worst pool first.

    The order is: pools that cannot serve; pools out of their SLO, those furthest below it first; pools that refuse
    requests or whose figures are unknown; pools whose instances are starting; and all other pools by name.
    """
    gap = pool.slo_percentile / 100 - (in_time(pool) or 0.0) if out_of_slo(pool) else 0.0
    if not pool.ready and pool.ready_reason != INSTANCES_STARTING:
        rank = 0
    elif gap > 0:
        rank = 1
    elif pool.rejections_per_second > 0 or pool.figures_behind_seconds:
        rank = 2
    else:
        rank = 4 if pool.ready else 3
    return rank, -gap, f"{pool.namespace}/{pool.name}"
