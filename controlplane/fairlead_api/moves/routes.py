"""Session migrations and re-routes: lists, flows between instances, and single moves."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, TypeVar

from fastapi import Depends

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import MoveOutcome
from fairlead_api import tables
from fairlead_api.access.guards import Guard
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import answer, seen
from fairlead_api.http.documents import Ask, document
from fairlead_api.http.listing import Fetch, From, To, listing
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.session_names import SessionNames
from fairlead_api.infra.times import parse_range
from fairlead_api.moves.store import MoveFilter, PostgresMoves
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.moves import Migration, MigrationFlow, MigrationMatrix, ReRoute

AnyMove = TypeVar("AnyMove", Migration, ReRoute)


def move_routes(
    guard: Guard,
    migrations: PostgresMoves[Migration],
    reroutes: PostgresMoves[ReRoute],
    names: SessionNames,
    clock: Callable[[], datetime],
) -> Routes:
    """Return the routes of migrations and re-routes under /v1."""
    routes = Routes(prefix="/v1", tags=["history"])
    viewer = guard.needs(AccessRole.VIEWER, somewhere=True)
    Viewer = Annotated[Caller, Depends(viewer)]  # noqa: N806 - it is a type

    async def move_filter(
        caller: Viewer,
        pool: str | None = None,
        source: str | None = None,
        target: str | None = None,
        trigger: BindingReason | None = None,
        outcome: MoveOutcome | None = None,
        session: str | None = None,
        paid_off: bool | None = None,
        start: From = None,
        end: To = None,
    ) -> MoveFilter:
        begun, ended = parse_range(start, end, clock())
        return MoveFilter(
            pool=pool,
            source=source,
            target=target,
            trigger=trigger,
            outcome=outcome,
            session=await names.filtered(pool, session, caller.sight),
            paid_off=paid_off,
            start=begun,
            end=ended,
        )

    Moves = Annotated[MoveFilter, Depends(move_filter)]  # noqa: N806 - it is a type

    async def chosen_migrations(wanted: Moves) -> Fetch:
        return lambda span: migrations.moves(wanted, span)

    async def chosen_reroutes(wanted: Moves) -> Fetch:
        return lambda span: reroutes.moves(wanted, span)

    async def get_matrix(wanted: Moves) -> Ask:
        """Session migrations in a range: flows between instances, counts per trigger and a timeline of 60 buckets."""
        return lambda sight: migrations.matrix(wanted, clock(), sight)

    document(routes, "/migrations/matrix", MigrationMatrix, viewer, get_matrix, MigrationFlow, lambda found: found.flows)

    async def get_reroute_matrix(wanted: Moves) -> Ask:
        """Re-routes in a range: flows between instances, counts per trigger and a timeline of 60 buckets."""
        return lambda sight: reroutes.matrix(wanted, clock(), sight)

    document(routes, "/reroutes/matrix", MigrationMatrix, viewer, get_reroute_matrix, MigrationFlow, lambda found: found.flows)

    listing(routes, "/migrations", Migration, viewer, chosen_migrations, by="-at")
    listing(routes, "/reroutes", ReRoute, viewer, chosen_reroutes, by="-at")

    @routes.get("/migrations/{migration_id:path}", response_model=Migration)
    async def get_migration(migration_id: str, caller: Viewer) -> Any:
        """One migration of a session."""
        return answer(seen(caller, await migrations.move(migration_id), "migration", migration_id))

    @routes.get("/reroutes/{reroute_id:path}", response_model=ReRoute)
    async def get_reroute(reroute_id: str, caller: Viewer) -> Any:
        """One re-route of a request."""
        return answer(seen(caller, await reroutes.move(reroute_id), "re-route", reroute_id))

    return routes


def stores_of(infra: Infra) -> tuple[PostgresMoves[Migration], PostgresMoves[ReRoute]]:
    """Return the stores of migrations and of re-routes."""
    return (
        PostgresMoves(infra.reads, tables.migrations, Migration, "migration", "session"),
        PostgresMoves(infra.reads, tables.reroutes, ReRoute, "re-route", "request"),
    )


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of migrations and re-routes."""
    return Feature(routes=(move_routes(guard, *stores_of(infra), SessionNames(infra.reads), infra.clock),))
