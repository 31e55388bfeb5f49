"""Made-up figures of a range: a pool's present figures held for the whole range, and sums over all pools."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from fairlead.range_steps import covered
from fairlead_client.resources.figures import InstanceFigures, RangeFigures
from fairlead_client.resources.pools import PoolSummary

_SUMMED = (
    "judged",
    "in_time",
    "ttft_in_time",
    "tpot_judged",
    "tpot_in_time",
    "refused",
    "sent",
    "failed_sends",
    "completed_sends",
    "cancelled_sends",
    "prompt_tokens",
    "hit_tokens",
    "migrations",
    "reroutes",
    "compared",
)


def figures_of(pool: PoolSummary, start: datetime, end: datetime, now: datetime, behind_seconds: float) -> RangeFigures:
    """Return the figures of a pool that was in its present state for the whole range.

    The last `behind_seconds` have no figures, because they are not rolled up yet.
    """
    where = covered(start, end, now)
    ended = min(where.end, now)
    seconds = max(0.0, (ended - where.start).total_seconds() - behind_seconds)
    judged = round((14.2 if pool.requests_per_second is None else pool.requests_per_second) * seconds)
    in_time = round(judged * (pool.attainment if pool.attainment is not None else 0.9))
    return RangeFigures(
        start=where.start,
        end=ended,
        judged=judged,
        in_time=in_time,
        ttft_in_time=min(judged, in_time + judged // 100),
        tpot_judged=judged,
        tpot_in_time=min(judged, in_time + judged // 50),
        refused=round(pool.rejections_per_second * seconds),
        sent=judged + judged // 50,
        failed_sends=judged // 100,
        completed_sends=judged,
        cancelled_sends=judged // 200,
        prompt_tokens=judged * 1000,
        hit_tokens=round(judged * 1000 * (pool.hit_rate or 0.0)),
        percentile=pool.slo_percentile,
        ttft_seconds=pool.ttft_at_percentile_seconds,
        ttft_p50_seconds=pool.ttft_p50_seconds,
        ttft_p95_seconds=pool.ttft_p95_seconds,
        tpot_p95_seconds=0.061,
        migrations=pool.sessions_moved,
        reroutes=pool.requests_rerouted,
        compared=pool.sessions_moved,
        seconds_won=1.4 * pool.sessions_moved,
        complete_until=ended - timedelta(seconds=behind_seconds) if behind_seconds else None,
    )


def figures_of_instance(pool: RangeFigures, instances: int) -> InstanceFigures:
    """Return the figures of one of `instances` instances that all served equal shares of the pool's requests."""
    return InstanceFigures(
        start=pool.start,
        end=pool.end,
        sent=pool.sent // instances,
        failed_sends=pool.failed_sends // instances,
        judged=pool.judged // instances,
        in_time=pool.in_time // instances,
        first_tokens=pool.judged // instances,
        ttft_in_time=pool.ttft_in_time // instances,
        prompt_tokens=pool.prompt_tokens // instances,
        hit_tokens=pool.hit_tokens // instances,
        output_tokens=pool.judged * 150 // instances,
        ttft_p95_seconds=pool.ttft_p95_seconds,
        tpot_p95_seconds=pool.tpot_p95_seconds,
        complete_until=pool.complete_until,
    )


def figures_of_all(each: Iterable[RangeFigures], empty: RangeFigures) -> RangeFigures:
    """Return the figures of all pools together; `empty` has the range."""
    found = list(each)
    sums = {name: sum(getattr(one, name) for one in found) for name in _SUMMED}
    return RangeFigures(
        start=empty.start,
        end=empty.end,
        ttft_seconds=3.6,
        ttft_p50_seconds=0.5,
        ttft_p95_seconds=3.6,
        tpot_p95_seconds=0.061,
        seconds_won=sum(one.seconds_won for one in found),
        complete_until=min((one.complete_until for one in found if one.complete_until is not None), default=None),
        **sums,
    )
