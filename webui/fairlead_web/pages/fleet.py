"""`/`: all pools at a glance, the problems, the latest moves and the latest changes by people."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from fairlead_client.resources.audit import AuditEntry
from fairlead_client.resources.moves import Migration
from fairlead_client.resources.pools import PoolSummary
from fairlead_web import findings
from fairlead_web.health import out_of_slo, pain
from fairlead_web.rendering import Context
from fairlead_web.routes import Routes
from fairlead_web.shells import Shell
from fairlead_web.visits import PAGE_ROWS, Visit


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over all pools; shares are weighted by requests, None without traffic; `late` pools are out of their SLO."""

    desired: int
    serving: int
    requests_per_second: float
    rejections_per_second: float
    migrations_per_hour: float
    attainment: float | None
    hit_rate: float | None
    late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPage(Context):
    template: ClassVar[str] = "pages/fleet.html"
    shell: Shell
    pools: list[PoolSummary]
    totals: Totals
    migrations: list[Migration] | None
    changes: list[AuditEntry] | None


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


ROUTES = Routes(pages={"/": show})
