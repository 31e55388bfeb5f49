"""`/`: all pools at a glance, what needs attention, what moved and what people changed."""

import asyncio
from collections.abc import Sequence

from starlette.responses import Response

from fairlead_client.resources.pools import PoolSummary
from fairlead_web import findings
from fairlead_web.contexts.pools import FleetPage, Totals
from fairlead_web.health import out_of_slo, pain
from fairlead_web.visits import PAGE_ROWS, Visit


async def show(visit: Visit) -> Response:
    pools, migrations, changes = await asyncio.gather(
        visit.api.pools(limit=PAGE_ROWS),
        visit.attempt("migrations", visit.api.migrations({"limit": 8})),
        visit.attempt("audit log", visit.api.audit({"limit": 6})),
    )
    visit = visit.since(pool.created_at for pool in pools.items)
    shell = await visit.shell(
        "Overview",
        "overview",
        ranged=True,
        live="pools,migrations",
        findings=findings.of_pools(pools.items),
        pools=pools.items,
    )
    return visit.page(
        FleetPage(
            shell=shell,
            pools=sorted(pools.items, key=pain),
            totals=totals(pools.items),
            migrations=migrations.items if migrations else None,
            changes=changes.items if changes else None,
        )
    )


def totals(pools: Sequence[PoolSummary]) -> Totals:
    """Sums over the pools; shares weighted by each pool's requests."""
    return Totals(
        desired=sum(pool.desired for pool in pools),
        serving=sum(pool.serving for pool in pools),
        requests_per_second=sum(pool.requests_per_second for pool in pools),
        rejections_per_second=sum(pool.rejections_per_second for pool in pools),
        migrations_per_hour=sum(pool.migrations_per_hour for pool in pools),
        attainment=_weighted([(pool.attainment, pool.requests_per_second) for pool in pools]),
        hit_rate=_weighted([(pool.hit_rate, pool.requests_per_second) for pool in pools]),
        late=sum(out_of_slo(pool) for pool in pools),
    )


def _weighted(values: Sequence[tuple[float | None, float]]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None and weight > 0]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None
