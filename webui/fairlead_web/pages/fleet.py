"""`/`: the worst findings with the plans that help, all pools (the worst first), and the traffic over the range."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from starlette.responses import Response

from fairlead_client.resources.advice import Trends
from fairlead_client.resources.audit import AuditAction, AuditEntry
from fairlead_client.resources.moves import Migration
from fairlead_client.resources.pools import PoolSummary
from fairlead_client.resources.schedules import ScheduleItem
from fairlead_web.drawing import findings
from fairlead_web.drawing.charts import Sparkline, sparkline
from fairlead_web.drawing.findings import Finding
from fairlead_web.drawing.range_figures import ShownFigures, shown
from fairlead_web.frame.health import health_of, pain
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Routes
from fairlead_web.frame.shells import Shell
from fairlead_web.frame.undoing import undoable
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats

NEXT_STARTS = 4
LAST_CHANGES = 6
LOOKED_THROUGH = 50
"""Number of newest entries of the audit log in which the page searches for recent changes."""
_NO_CHANGE = frozenset({AuditAction.LOGIN, AuditAction.LOGOUT, AuditAction.LOGIN_LINK_CREATED, AuditAction.ACCESS_DENIED})
CARDS = 40
"""Maximum number of pools that have a card. A card has nearly fifty elements, and a page may have at most 2,500."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The numbers of instances of all pools now, and the number of pools that were below their objective over the
    range.
    """

    desired: int
    serving: int
    late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The next start of a schedule; `local` is its time in the schedule's time zone."""

    at: datetime
    local: str
    pool: str
    schedule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPage(Context):
    template: ClassVar[str] = "pages/fleet.html"
    shell: Shell
    pools: list[PoolSummary]
    """The pools that the totals cover, the worst first."""
    cut: str
    """A text such as `the first 200 of 260 pools` if `pools` does not contain all pools; otherwise empty."""
    cards: list[PoolSummary]
    """The pools that have a card: the worst, at most CARDS."""
    totals: Totals
    levels: dict[str, str]
    """A level for each pool: the level of its health or of its worst finding, whichever is worse."""
    worst: dict[str, Finding]
    """The worst finding of each pool, unless the top of the page already shows it."""
    shown: ShownFigures | None
    """The figures of all pools together over the range; None if they could not be read."""
    instance_hours: float | None
    pool_figures: dict[str, ShownFigures]
    pool_lines: dict[str, Sparkline]
    starts: list[Start] | None
    migrations: list[Migration] | None
    changes: list[AuditEntry] | None
    undo: str | None
    """The id of the plan that was applied last, if the reader can undo it."""


async def show(visit: Visit) -> Response:
    pools, advice, schedules, migrations, changes, applied = await asyncio.gather(
        visit.first_pools(),
        visit.attempt("advice", visit.api.advice()),
        visit.attempt("schedules", visit.api.schedules({"limit": 100}), ["starts"]),
        visit.attempt("migrations", visit.api.migrations({"limit": 8}), ["migrations"]),
        visit.attempt("audit log", visit.api.audit({"limit": LOOKED_THROUGH}), ["changes"]),
        visit.attempt("applied plans", visit.api.audit({"limit": 1, "action": AuditAction.PLAN_APPLIED.value}), ["changes"]),
    )
    visit = visit.since(pool.created_at for pool in pools.items)
    asked = visit.range.asked
    trends = await visit.attempt("trends", visit.api.trends(start=asked["from"], end=asked["to"]), ["totals", "cards"])
    of_pools = {one.pool: shown(one.figures) for one in trends.pools} if trends else {}
    found = findings.of_advice(advice.items if advice else ())
    top = findings.first(found)
    ranked = by_harm(pools.items, found)
    last = next(iter(applied.items if applied else ()), None)
    shell = await visit.shell(
        "Overview",
        "overview",
        ranged=True,
        live="pools,migrations",
        findings=top,
        pools=pools,
    )
    return visit.page(
        FleetPage(
            shell=shell,
            pools=ranked,
            cut=pools.cut_words("pools"),
            cards=ranked[:CARDS],
            totals=totals(pools.items, of_pools),
            levels=levels(pools.items, found),
            worst=worst(found, top),
            shown=shown(trends.fleet.figures) if trends else None,
            instance_hours=trends.fleet.instance_hours if trends else None,
            pool_figures=of_pools,
            pool_lines=pool_lines(trends) if trends else {},
            starts=next_starts(schedules.items) if schedules else None,
            migrations=migrations.items if migrations else None,
            changes=last_changes(changes.items, last) if changes else None,
            undo=last.plan if last and await undoable(visit, last, shell.identity) else None,
        )
    )


def last_changes(entries: Iterable[AuditEntry], last: AuditEntry | None) -> list[AuditEntry]:
    """Return the newest audit entries that changed something, without logins and logouts. The plan that was applied
    last is always included, even if controllers have made many changes since.
    """
    changes = [entry for entry in entries if entry.action not in _NO_CHANGE][:LAST_CHANGES]
    if last is None or any(entry.id == last.id for entry in changes):
        return changes
    return [*changes[: LAST_CHANGES - 1], last]


def by_harm(pools: Iterable[PoolSummary], found: Sequence[Finding]) -> list[PoolSummary]:
    """Return the pools in the order of their first finding. Pools without a finding come last, ordered by `pain`."""
    places: dict[str, int] = {}
    for place, one in enumerate(found):
        if one.level != "note":
            places.setdefault(one.pool, place)
    return sorted(pools, key=lambda pool: (places.get(_name(pool), len(found)), pain(pool)))


def levels(pools: Iterable[PoolSummary], found: Iterable[Finding]) -> dict[str, str]:
    """Return a level for each pool: the level of its health or of its worst finding, whichever is worse, because a
    ready pool with a finding is not healthy.
    """
    order = ("bad", "warn", "good")
    result = {_name(pool): health_of(pool).level for pool in pools}
    for one in found:
        if one.pool in result and one.level in order:
            result[one.pool] = min(result[one.pool], one.level, key=order.index)
    return result


def worst(found: Iterable[Finding], top: Iterable[Finding]) -> dict[str, Finding]:
    """Return the worst finding of each pool, if its level is above note. Pools with a finding in `top`, which the top
    of the page shows, are left out.
    """
    told = {one.pool for one in top}
    result: dict[str, Finding] = {}
    for one in found:
        if one.level != "note" and one.pool not in told:
            result.setdefault(one.pool, one)
    return result


def pool_lines(trends: Trends) -> dict[str, Sparkline]:
    """Draw, for each pool that had requests, the share of requests within the objectives over time."""
    found = {}
    for one in trends.pools:
        if any(one.judged):
            shares = [part / whole if whole else None for part, whole in zip(one.in_time, one.judged, strict=True)]
            found[one.pool] = sparkline(shares, f"Requests in time: {formats.share(one.figures.attainment)}", height=24)
    return found


def next_starts(schedules: Iterable[ScheduleItem]) -> list[Start]:
    """Return the next start of each schedule that is not paused, the soonest first."""
    found = [
        Start(at=one.next_starts[0].at, local=one.next_starts[0].local, pool=one.pool, schedule=one.name)
        for one in schedules
        if one.next_starts and not one.paused
    ]
    return sorted(found, key=lambda start: (start.at, start.pool, start.schedule))[:NEXT_STARTS]


def _name(pool: PoolSummary) -> str:
    return f"{pool.namespace}/{pool.name}"


def totals(pools: Sequence[PoolSummary], figures: Mapping[str, ShownFigures]) -> Totals:
    """Return the totals over the pools. A pool counts as below its objective if the figures on its card say so."""
    return Totals(
        desired=sum(pool.desired for pool in pools),
        serving=sum(pool.serving for pool in pools),
        late=sum(_name(pool) in figures and figures[_name(pool)].below(pool.slo_percentile) for pool in pools),
    )


ROUTES = Routes(pages={"/": show})
