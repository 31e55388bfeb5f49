"""Refused requests by cause."""

from collections.abc import Callable
from datetime import datetime, timedelta

from fairlead_api.access.guards import Guard
from fairlead_api.features import Feature, Infra
from fairlead_api.http.documents import Ask, document
from fairlead_api.http.listing import From, To
from fairlead_api.http.routes import Routes
from fairlead_api.infra.times import parse_range
from fairlead_api.loads.routes import kept_of
from fairlead_api.rejections.store import PostgresRejections
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.rejections import RejectionGroup, RejectionReport


def rejection_routes(guard: Guard, reader: PostgresRejections, clock: Callable[[], datetime]) -> Routes:
    """Return the routes of rejections under /v1."""
    routes = Routes(prefix="/v1", tags=["history"])
    viewer = guard.needs(AccessRole.VIEWER, somewhere=True)

    async def get_rejections(pool: str | None = None, priority_class: str | None = None, start: From = None, end: To = None) -> Ask:
        """Refusals by cause and priority class, with sparklines of 60 buckets and the newest samples.

        Covers the last hour by default.
        """
        now = clock()
        begun, ended = parse_range(start or "now-1h", end or "now", now)
        return lambda sight: reader.rejections(pool, begun or now - timedelta(hours=1), ended or now, priority_class, sight=sight)

    document(routes, "/rejections", RejectionReport, viewer, get_rejections, RejectionGroup, lambda found: found.groups)
    return routes


def rejections_of(infra: Infra) -> PostgresRejections:
    """Return the store of refusals."""
    return PostgresRejections(infra.reads, kept_of(infra.settings), infra.clock)


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of refused requests."""
    return Feature(routes=(rejection_routes(guard, rejections_of(infra), infra.clock),))
