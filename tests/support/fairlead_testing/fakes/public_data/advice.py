"""The situations of the made-up pools for `fairlead.advice`, and their trends over a range."""

import math
from collections.abc import Iterable
from datetime import datetime

from fairlead.advice.situations import PoolSituation, SeenCondition, SeenInstance, SeenRole, SeenSizing, Served
from fairlead.capabilities import declared
from fairlead.instances import Role
from fairlead.reports.rejections import RejectionReason
from fairlead.scaling.remedies import Reach, Simulated, Tried
from fairlead.scaling.signals import PoolSignals, RoleSignals
from fairlead.scaling.sizing import Capacity
from fairlead.scaling.specs import ScalingSpec
from fairlead.tables import EarlyRejectionFacts, SloFacts
from fairlead_client.resources.advice import PoolTrend, Trends
from fairlead_client.resources.figures import RangeFigures
from fairlead_client.resources.instances import InstanceSummary
from fairlead_client.resources.pools import PoolCondition, PoolSummary
from fairlead_testing.fakes.public_data.figures import figures_of_all
from fairlead_testing.fakes.public_data.loads import noise

WINDOW = 300.0
SPEED = 1000.0


def situation(pool: PoolSummary, instances: list[InstanceSummary], conditions: list[PoolCondition]) -> PoolSituation:
    """Return the situation of a pool whose requests are spread evenly.

    If the pool misses its SLO, it gets one and a half times the work that its instances can do.
    """
    judged = 0 if pool.attainment is None else round((pool.requests_per_second or 0.0) * WINDOW)
    of_each = [judged // len(instances)] * len(instances)
    late = pool.attainment is not None and pool.attainment * 100 < pool.slo_percentile
    return PoolSituation(
        pool=f"{pool.namespace}/{pool.name}",
        slo=SloFacts(ttft_seconds=pool.ttft_slo_seconds, percentile=pool.slo_percentile),
        scaling=ScalingSpec(),
        early_rejection=EarlyRejectionFacts(),
        capacity=Capacity(prefill_speed=declared(SPEED), kv_cache_tokens=1_198_372),
        roles=(SeenRole(role=Role.BOTH, wanted=pool.desired, least=0, most=64),),
        can_scale=not pool.runs_already or pool.scale_target is not None,
        can_drain=pool.engines_file is None,
        instances=tuple(
            SeenInstance(id=one.id, state=one.state, reason=one.reason, weight=one.weight, served=_served(number, pool), load=1.3 * late)
            for one, number in zip(instances, of_each, strict=True)
        ),
        refused={RejectionReason.PREDICTED_TTFT.value: round(pool.rejections_per_second * WINDOW)},
        signals=_signals(1.5 * pool.serving, pool) if late else None,
        figures_behind_seconds=pool.figures_behind_seconds,
        sizing=SeenSizing(role=Role.BOTH, age_seconds=20.0, found=_simulated(pool), found_seconds=20.0) if late else None,
        conditions=tuple(SeenCondition(type=one.type, status=one.status, reason=one.reason, message=one.message) for one in conditions),
    )


def _served(judged: int, pool: PoolSummary) -> Served:
    met = round(judged * (pool.attainment or 0.0))
    return Served(
        judged=judged,
        in_time=met,
        ttft_judged=judged,
        ttft_in_time=met,
        tpot_judged=judged,
        tpot_in_time=judged,
        requests=judged,
        prefilled_tokens=judged * 1000,
    )


def _simulated(pool: PoolSummary) -> Simulated:
    """Return a simulation's result: twice as many instances are enough for the SLO."""
    goal, before = pool.slo_percentile / 100, pool.attainment or 0.0
    enough = Tried(value=2.0 * pool.serving, attainments=(0.97, 0.98), fewer=0.99, more=0.95)
    return Simulated(
        simulation="sized-1",
        role=Role.BOTH,
        present=pool.serving,
        goal=goal,
        ttft_seconds=pool.ttft_slo_seconds,
        tpot_seconds=0.1,
        requests=4000,
        seconds=3500.0,
        before=before,
        numbers=(enough,),
        ttfts=(),
        reach=Reach(requests=4000),
    )


def _signals(work: float, pool: PoolSummary) -> PoolSignals:
    role = RoleSignals(
        role=Role.BOTH,
        serving=pool.serving,
        in_flight=9,
        waiting=4,
        prompt_tokens_per_second=work * SPEED,
        requests_per_second=pool.requests_per_second,
        finished_requests=400,
        cached_share=0.0,
        output_tokens_per_second=0.0,
        prefill_tokens_per_second=SPEED,
    )
    return PoolSignals(window_seconds=30.0, age_seconds=1.0, roles=(role,))


def trends(start: datetime, end: datetime, pools: Iterable[tuple[PoolSummary, RangeFigures]], instances: int) -> Trends:
    """Return trends of thirty steps: pools have their present attainment with some noise, and no data in the first two
    steps.
    """
    steps = 30
    step_seconds = max(60, math.ceil((end - start).total_seconds() / steps / 60) * 60)
    found = [_trend(pool, steps, step_seconds, figures) for pool, figures in pools]
    all_of_them = figures_of_all([one.figures for one in found], RangeFigures(start=start, end=end))
    sums = {
        name: [sum(values) for values in zip(*(getattr(one, name) for one in found), strict=True)] or [0] * steps
        for name in ("judged", "in_time", "refused", "failed")
    }
    hours = (end - start).total_seconds() / 3600 * instances
    ttft = [None, None, *[3.6] * (steps - 2)]
    fleet = PoolTrend(pool="", ttft_seconds=ttft, instance_hours=hours, figures=all_of_them, **sums)
    return Trends(start=start, end=end, step_seconds=step_seconds, fleet=fleet, pools=found)


def _trend(pool: PoolSummary, steps: int, step_seconds: int, figures: RangeFigures) -> PoolTrend:
    name = f"{pool.namespace}/{pool.name}"
    judged = [0 if step < 2 else round((pool.requests_per_second or 0.0) * step_seconds) for step in range(steps)]
    shares = [min(1.0, (pool.attainment or 0.0) + 0.04 * (noise(name, step) - 0.5)) for step in range(steps)]
    ttft = pool.ttft_at_percentile_seconds
    return PoolTrend(
        pool=name,
        judged=judged,
        in_time=[round(number * share) for number, share in zip(judged, shares, strict=True)],
        refused=[round(pool.rejections_per_second * step_seconds)] * steps,
        failed=[0] * steps,
        ttft_seconds=[None, None, *[ttft] * (steps - 2)],
        instance_hours=float(pool.desired),
        figures=figures,
    )
