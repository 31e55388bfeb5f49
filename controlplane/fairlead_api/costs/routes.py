"""Cost reports: the cost of instances, divided among the users of the pools."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Query

from fairlead.errors import InvalidInput
from fairlead_api.access.guards import Guard
from fairlead_api.costs.opencost import OpenCost
from fairlead_api.costs.store.measuring import MeasuredPrices
from fairlead_api.costs.store.reading import PostgresCosts
from fairlead_api.costs.store.spending import Budgets
from fairlead_api.features import Feature, Infra
from fairlead_api.http.documents import Ask, document
from fairlead_api.http.listing import From, To
from fairlead_api.http.routes import Routes
from fairlead_api.infra.times import parse_range
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.costs import CostGroup, CostLine, CostReport

LONGEST_DAYS = 92
"""Maximum number of days of a cost report. The report divides the cost of each hour separately."""
HOUR = timedelta(hours=1)

By = Annotated[CostGroup, Query(description="The groups among which the cost is divided.")]


def cost_routes(guard: Guard, reader: PostgresCosts, clock: Callable[[], datetime]) -> Routes:
    """Return the routes of costs under /v1."""
    routes = Routes(prefix="/v1", tags=["history"])
    viewer = guard.needs(AccessRole.VIEWER, somewhere=True)

    async def get_cost(by: By = CostGroup.POOL, pool: str | None = None, start: From = None, end: To = None) -> Ask:
        """The cost of instances over a range of whole hours, divided exactly among requests and idle time.

        The range is the last day by default, and at most 92 days. It is widened to whole hours in UTC, but not beyond
        the present.
        """
        now = clock()
        begun, ended = parse_range(start or "now-24h", end or "now", now)
        first, last = whole_hours(begun or now, ended or now, now)
        if last - first > timedelta(days=LONGEST_DAYS) + HOUR:
            raise InvalidInput("from", start, f"write a range of at most {LONGEST_DAYS} days")
        return lambda sight: reader.report(by, pool, first, last, sight=sight)

    document(routes, "/cost", CostReport, viewer, get_cost, CostLine, lambda found: found.lines)
    return routes


def whole_hours(start: datetime, end: datetime, now: datetime) -> tuple[datetime, datetime]:
    """Return the start and the end of the whole hours that contain a range. The end is at most `now`, but not before
    the start. Pure.
    """
    first = start.replace(minute=0, second=0, microsecond=0)
    last = end.replace(minute=0, second=0, microsecond=0)
    last = last if last == end else last + HOUR
    return first, max(first, min(last, now))


def costs_of(infra: Infra) -> PostgresCosts:
    """Return the store of costs."""
    return PostgresCosts(infra.reads)


def telling(infra: Infra) -> Callable[[datetime], Awaitable[None]]:
    """Return the job that exports the present cost per hour as metrics of this process."""
    store = PostgresCosts(infra.background)

    async def tell(now: datetime) -> None:
        infra.telemetry.tell_cost(await store.rates(now))

    return tell


def budgets_of(infra: Infra) -> Budgets:
    """Return the job that compares the costs of gateway keys with their budgets."""
    return Budgets(PostgresCosts(infra.background), infra.background)


def measuring_of(infra: Infra) -> MeasuredPrices:
    """Return the job that stores the prices that OpenCost measures."""
    url = infra.settings.opencost_url
    return MeasuredPrices(infra.background, OpenCost(url) if url else None, infra.settings.opencost_currency)


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of costs."""
    return Feature(routes=(cost_routes(guard, costs_of(infra), infra.clock),))
