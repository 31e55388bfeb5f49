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
"""Types of conditions that are never shown as `bad`. Whatever their status is, the pool's desired instances still serve
the routers' clients.
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


def beyond_slo(pool: PoolSummary) -> bool:
    """Return whether the refused requests alone put the pool out of its SLO: too few of all requests can be in time,
    even if every served request is. False without figures.
    """
    asked = (pool.requests_per_second or 0.0) + pool.rejections_per_second
    return asked > 0 and not meets(1 - pool.rejections_per_second / asked, pool.slo_percentile)


def _troubles(pool: PoolSummary) -> str:
    """Return words for the problems of the requests in the last minutes, to be added to the words for the pool's
    state.
    """
    late = ", out of SLO" if out_of_slo(pool) else ""
    return f"{late}, refuses requests" if pool.rejections_per_second > 0 else late


def health_of(pool: PoolSummary) -> Health:
    """Return the pool's health.

    Good: a ready pool within its SLO that refuses no requests, and a pool that is scaled to zero. Warn: a ready pool
    whose figures are out of date, a ready pool within its SLO that refuses some requests, and a pool within its SLO
    whose instances are starting. Bad: every other pool.
    """
    late, troubles = out_of_slo(pool) or beyond_slo(pool), _troubles(pool)
    if pool.ready and pool.figures_behind_seconds:
        return Health(level="warn", words="ready, figures behind")
    if pool.ready and pool.ready_reason == SCALED_TO_ZERO:
        wakes = pool.ready_message.endswith(UNTIL_A_REQUEST)
        return Health(level="good", words="asleep, wakes with the next request" if wakes else "at zero, as declared")
    if pool.ready:
        return Health(level="bad" if late else "warn" if troubles else "good", words=f"ready{troubles}")
    if pool.ready_reason == INSTANCES_STARTING:
        return Health(level="bad" if late else "warn", words=f"{_start(pool)}{troubles}")
    return Health(level="bad", words=f"{pool.ready_reason}{troubles}")


def _start(pool: PoolSummary) -> str:
    """Return the words for a pool whose condition Ready waits for instances.

    If the number of serving instances is not below the desired number, the words are `not ready yet`. There are two
    causes: the numbers are newer than the condition, or one role has too many instances and another has too few.
    """
    return f"starting, {pool.serving} of {pool.desired} serve" if pool.serving < pool.desired else "not ready yet"


def condition_level(condition: PoolCondition) -> str:
    """Return the level of the mark beside a condition: `good`, `warn`, `bad` or `plain`.

    It is `plain` if the condition's status is unknown, or if scaling is disabled. It is `warn` while a change is in
    progress, and for the types in _NOTICES.
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
