"""Routes of schedules, of the values in force at a time, and of the outcomes of schedules' starts."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends

from fairlead.schedules.runs import RunOutcome
from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import answer
from fairlead_api.http.listing import Fetch, From, To, listing
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.times import parse_range, parse_time
from fairlead_api.schedules.store import PostgresSchedules, RunFilter
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.schedules import InForceAt, ScheduleDetail, ScheduleItem, ScheduleRun


def schedule_routes(guard: Guard, reader: PostgresSchedules, clock: Callable[[], datetime]) -> Routes:
    """Return the routes of schedules under /v1."""
    routes = Routes(prefix="/v1", tags=["schedules"])
    viewer = guard.needs(AccessRole.VIEWER, somewhere=True)
    Viewer = Annotated[Caller, Depends(viewer)]  # noqa: N806 - it is a type

    async def schedules(pool: str | None = None) -> Fetch:
        return lambda span: reader.schedules(pool, span, clock())

    async def runs(
        pool: str | None = None, schedule: str | None = None, outcome: RunOutcome | None = None, start: From = None, end: To = None
    ) -> Fetch:
        begun, ended = parse_range(start, end, clock())
        wanted = RunFilter(pool=pool, schedule=schedule, outcome=outcome, start=begun, end=ended)
        return lambda span: reader.runs(wanted, span)

    listing(routes, "/schedules", ScheduleItem, viewer, schedules)
    listing(routes, "/schedule-runs", ScheduleRun, viewer, runs, by="-start")

    @routes.get("/schedules/{namespace}/{pool}/{name}", response_model=ScheduleDetail)
    async def get_schedule(namespace: str, pool: str, name: str, caller: Viewer, start: From = None) -> Any:
        """A schedule, with the windows and conflicts of all schedules of its pool in one week.

        The week begins with `from`, by default with the present day in UTC.
        """
        now = clock()
        begin = parse_time("from", start, now) if start is not None else _midnight(now)
        return answer(await reader.schedule(PoolKey(namespace=namespace, name=pool), name, begin, now))

    @routes.get("/pools/{namespace}/{name}/bounds", response_model=InForceAt)
    async def get_bounds(namespace: str, name: str, caller: Viewer, at: str = "now") -> Any:
        """The values in force at a time according to the pool's present spec: bounds per role, SLO, early rejection,
        windows.
        """
        return answer(await reader.in_force(PoolKey(namespace=namespace, name=name), parse_time("at", at, clock())))

    return routes


def _midnight(now: datetime) -> datetime:
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of schedules and the outcomes of their starts."""
    return Feature(routes=(schedule_routes(guard, PostgresSchedules(infra.reads), infra.clock),))
