"""Session migrations and re-routes: lists, flows between instances, and single moves."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import APIRouter, Depends

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import MoveOutcome
from fairlead_api.routes.answers import answer
from fairlead_api.routes.guards import Guard
from fairlead_api.routes.listing import Fetch, From, To, listing
from fairlead_api.services.access.access import Caller
from fairlead_api.services.history.filters import MoveFilter
from fairlead_api.services.history.times import parse_range
from fairlead_api.services.spans import Span
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.moves import Migration, MigrationMatrix, ReRoute
from fairlead_client.resources.pages import Page

AnyMove = TypeVar("AnyMove", Migration, ReRoute)


class MoveReader(Protocol[AnyMove]):
    """The source of one kind of move."""

    async def moves(self, wanted: MoveFilter, span: Span) -> Page[AnyMove]: ...

    async def move(self, move_id: str) -> AnyMove:
        """One move. Raises NotFound."""

    async def matrix(self, wanted: MoveFilter, now: datetime) -> MigrationMatrix: ...


def move_routes(guard: Guard, migrations: MoveReader[Migration], reroutes: MoveReader[ReRoute], clock: Callable[[], datetime]) -> APIRouter:
    """Migrations and re-routes under /v1."""
    routes = APIRouter(prefix="/v1", tags=["history"])
    viewer = guard.needs(AccessRole.VIEWER)
    Viewer = Annotated[Caller, Depends(viewer)]  # noqa: N806 - it is a type

    def move_filter(
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
            session=session,
            paid_off=paid_off,
            start=begun,
            end=ended,
        )

    Moves = Annotated[MoveFilter, Depends(move_filter)]  # noqa: N806 - it is a type

    def chosen_migrations(wanted: Moves) -> Fetch:
        return lambda span: migrations.moves(wanted, span)

    def chosen_reroutes(wanted: Moves) -> Fetch:
        return lambda span: reroutes.moves(wanted, span)

    @routes.get("/migrations/matrix", response_model=MigrationMatrix)
    async def get_matrix(caller: Viewer, wanted: Moves) -> Any:
        """Session migrations: flows between instances, counts per trigger and a timeline of 60 buckets."""
        return answer(await migrations.matrix(wanted, clock()))

    @routes.get("/reroutes/matrix", response_model=MigrationMatrix)
    async def get_reroute_matrix(caller: Viewer, wanted: Moves) -> Any:
        """Re-routes: flows between instances, counts per trigger and a timeline of 60 buckets."""
        return answer(await reroutes.matrix(wanted, clock()))

    listing(routes, "/migrations", Migration, viewer, chosen_migrations)
    listing(routes, "/reroutes", ReRoute, viewer, chosen_reroutes)

    @routes.get("/migrations/{migration_id:path}", response_model=Migration)
    async def get_migration(migration_id: str, caller: Viewer) -> Any:
        """One migration of a session."""
        return answer(await migrations.move(migration_id))

    @routes.get("/reroutes/{reroute_id:path}", response_model=ReRoute)
    async def get_reroute(reroute_id: str, caller: Viewer) -> Any:
        """One re-route of a request."""
        return answer(await reroutes.move(reroute_id))

    return routes
