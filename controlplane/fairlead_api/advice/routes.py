"""Advice: findings ranked by harm; and trends of all pools over a range."""

import math
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated

from fastapi import Query

from fairlead.errors import InvalidInput
from fairlead.range_steps import covered
from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.advice.asking import Advising, TrendStep, trend_steps
from fairlead_api.advice.proposing import Advised, Proposing, Source
from fairlead_api.advice.sizing import Sizing
from fairlead_api.advice.store.situations import PostgresSituations, PostgresTrends
from fairlead_api.features import Feature, Infra
from fairlead_api.http.documents import Ask, document
from fairlead_api.http.routes import Routes
from fairlead_api.infra.sharing import Recent
from fairlead_api.infra.spans import Sight
from fairlead_api.infra.times import parse_range
from fairlead_api.plans.plans import Plans
from fairlead_api.series.reading import HOUR, MINUTE
from fairlead_api.simulations.store.sizings import PostgresSizings
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.advice import Advice, AdviceReport, Trends

MOST_STEPS = 40
LONGEST = timedelta(days=90)


class TrendReading:
    """Reads trends. Simultaneous callers who need the same steps share one result."""

    def __init__(self, reader: PostgresTrends, recent: Recent) -> None:
        self._reader = reader
        self._recent = recent

    async def trends(self, start: str, end: str, now: datetime, sight: Sight = None) -> Trends:
        """Return trends of the visible pools. Raises InvalidInput, which names the query parameter."""
        begun, ended = parse_range(start, end, now)
        begun, ended = begun or now, min(ended or now, now)
        if begun >= ended:
            raise InvalidInput("from", start, "write a time in the past and before `to`")
        if ended - begun > LONGEST:
            raise InvalidInput("from", start, f"write a range of at most {LONGEST.days} days")
        where = covered(begun, ended, now)
        unit = HOUR if where.by_hours else MINUTE
        step = unit * math.ceil((where.end - where.start).total_seconds() / unit / MOST_STEPS)
        key = ("trends", where, step, ended.timestamp() // unit, sight)
        return await self._recent.get(key, lambda: self._reader.trends(where, step, now, sight))


def advice_routes(guard: Guard, advising: Advising, trends: TrendReading, clock: Callable[[], datetime]) -> Routes:
    """Return the routes of advice and trends under /v1."""
    routes = Routes(prefix="/v1", tags=["advice"])
    viewer, anywhere = guard.needs(AccessRole.VIEWER), guard.needs(AccessRole.VIEWER, somewhere=True)

    async def get_advice() -> Ask:
        """The problems of the pools at present, their causes, and the plans that would help; the most harmful finding
        first.
        """
        return lambda sight: advising.advice(None, clock(), sight)

    document(routes, "/advice", AdviceReport, anywhere, get_advice, Advice, lambda found: found.items)

    async def get_pool_advice(namespace: str, name: str) -> Ask:
        """Findings about one pool, in the same form as the findings about all pools."""
        return lambda sight: advising.advice(PoolKey(namespace=namespace, name=name), clock())

    document(routes, "/pools/{namespace}/{name}/advice", AdviceReport, viewer, get_pool_advice, Advice, lambda found: found.items)

    async def get_trends(
        start: Annotated[str, Query(alias="from", max_length=40)] = "now-1h",
        end: Annotated[str, Query(alias="to", max_length=40)] = "now",
    ) -> Ask:
        """Trends of all visible pools over a range of at most 90 days, in at most 41 steps. Steps are whole minutes, or
        whole hours if the range is longer than six hours or begins more than 25 hours ago.
        """
        return lambda sight: trends.trends(start, end, clock(), sight)

    document(routes, "/trends", Trends, anywhere, get_trends, TrendStep, trend_steps)

    return routes


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of advice and trends."""
    advising, trends = Advising(PostgresSituations(infra.reads), infra.recent), TrendReading(PostgresTrends(infra.reads), infra.recent)
    return Feature(routes=(advice_routes(guard, advising, trends, infra.clock),))


def proposing_of(infra: Infra, plans: Plans, forecasts: Source) -> tuple[Proposing, Proposing]:
    """Return the two background jobs that make proposals: from the operator's advice, and from forecasts."""
    return Proposing(Advised(PostgresSituations(infra.background), forecasts), plans), Proposing(forecasts, plans)


def sizing_of(infra: Infra) -> Sizing:
    """Return the background job that simulates each pool that misses its objectives."""
    store = PostgresSizings(infra.background)
    return Sizing(PostgresSituations(infra.background), store, partial(secrets.token_hex, 8), enabled=infra.simulates)
