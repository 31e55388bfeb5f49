"""Sessions, migrations, re-routes, decisions, rejections and audit."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Query

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_api.routes.answers import answer
from fairlead_api.routes.guards import Guard
from fairlead_api.routes.listing import Fetch, exporting, listing
from fairlead_api.services.access.access import Caller
from fairlead_api.services.errors import NotFound
from fairlead_api.services.history.reading import AuditFilter, DecisionFilter, HistoryReader, MoveFilter, SessionFilter
from fairlead_api.services.history.times import parse_range
from fairlead_api.services.spans import Span
from fairlead_client.resources.audit import AuditEntry, AuditHead, AuditVerification
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.moves import Migration, MigrationMatrix, ReRoute
from fairlead_client.resources.pages import Page
from fairlead_client.resources.rejections import RejectionGroup, RejectionReport
from fairlead_client.resources.sessions import SessionDetail, SessionSummary

From = Annotated[str | None, Query(alias="from")]
To = Annotated[str | None, Query(alias="to")]
KeptId = Annotated[int | None, Query(ge=1, le=2**63 - 1)]
KeptChain = Annotated[str | None, Query(pattern="^[0-9a-f]{64}$")]


class Verifier(Protocol):
    """Checks the audit log's chain."""

    async def head(self) -> AuditHead | None: ...

    async def verify(self, kept: AuditHead | None = None) -> AuditVerification: ...


def history_routes(guard: Guard, reader: HistoryReader, audit: Verifier, clock: Callable[[], datetime]) -> APIRouter:
    """Everything under /v1 about what happened."""
    routes = APIRouter(prefix="/v1", tags=["history"])
    viewer = guard.needs("viewer")
    Viewer = Annotated[Caller, Depends(viewer)]  # noqa: N806 - it is a type

    def session_filter(pool: str | None = None, instance: str | None = None, q: str | None = None) -> Fetch:
        wanted = SessionFilter(pool=pool, instance=instance, q=q)
        return lambda span: reader.sessions(wanted, span)

    def move_filter(
        pool: str | None = None,
        source: str | None = None,
        target: str | None = None,
        trigger: str | None = None,
        outcome: str | None = None,
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

    def migrations(wanted: Moves) -> Fetch:
        return lambda span: reader.migrations(wanted, span)

    def reroutes(wanted: Moves) -> Fetch:
        return lambda span: reader.reroutes(wanted, span)

    def decisions(
        pool: str | None = None,
        instance: str | None = None,
        session: str | None = None,
        reason: str | None = None,
        start: From = None,
        end: To = None,
    ) -> Fetch:
        begun, ended = parse_range(start, end, clock())
        wanted = DecisionFilter(pool=pool, instance=instance, session=session, reason=reason, start=begun, end=ended)
        return lambda span: reader.decisions(wanted, span)

    def entries(
        actor: str | None = None,
        action: str | None = None,
        target: Annotated[str | None, Query(alias="object")] = None,
        start: From = None,
        end: To = None,
    ) -> Fetch:
        begun, ended = parse_range(start, end, clock())
        wanted = AuditFilter(actor=actor, action=action, object=target, start=begun, end=ended)
        return lambda span: reader.audit(wanted, span)

    def rejections(pool: str | None = None, start: From = None, end: To = None) -> Callable[[], Awaitable[RejectionReport]]:
        now = clock()
        begun, ended = parse_range(start or "now-1h", end or "now", now)
        return lambda: reader.rejections(pool, begun or now - timedelta(hours=1), ended or now)

    def rejection_groups(report: Annotated[Callable[[], Awaitable[RejectionReport]], Depends(rejections)]) -> Fetch:
        async def fetch(span: Span) -> Page[RejectionGroup]:
            return Page(items=(await report()).groups)

        return fetch

    @routes.get("/migrations/matrix", response_model=MigrationMatrix)
    async def get_matrix(caller: Viewer, wanted: Moves) -> Any:
        """Session migrations: flows between instances, counts per trigger and a timeline of 60 buckets."""
        return answer(await reader.migration_matrix(wanted, clock()))

    @routes.get("/reroutes/matrix", response_model=MigrationMatrix)
    async def get_reroute_matrix(caller: Viewer, wanted: Moves) -> Any:
        """The same of re-routes."""
        return answer(await reader.reroute_matrix(wanted, clock()))

    @routes.get("/audit/verification", response_model=AuditVerification)
    async def get_verification(caller: Viewer, head_id: KeptId = None, head_chain: KeptChain = None) -> Any:
        """Walks the whole hash chain, up to its newest head. A head kept from `/v1/audit/head` is checked too when it is given."""
        if (head_id is None) != (head_chain is None):
            raise InvalidInput("head_id" if head_id is None else "head_chain", None, "give head_id and head_chain together, or neither")
        kept = None if head_id is None or head_chain is None else AuditHead(id=head_id, chain=head_chain, at=clock())
        return answer(await audit.verify(kept))

    @routes.get("/audit/head", response_model=AuditHead)
    async def get_head(caller: Viewer) -> Any:
        """The newest entry's place in the chain. Keep it outside this database: it proves later what the log was."""
        head = await audit.head()
        if head is None:
            raise NotFound("audit entry", "1")
        return answer(head)

    listing(routes, "/sessions", SessionSummary, viewer, session_filter)
    listing(routes, "/migrations", Migration, viewer, migrations)
    listing(routes, "/reroutes", ReRoute, viewer, reroutes)
    listing(routes, "/decisions", RoutingDecision, viewer, decisions)
    listing(routes, "/audit", AuditEntry, viewer, entries)

    @routes.get("/rejections", response_model=RejectionReport)
    @routes.get("/rejections.json", include_in_schema=False)
    async def get_rejections(caller: Viewer, report: Annotated[Callable[[], Awaitable[RejectionReport]], Depends(rejections)]) -> Any:
        """Refusals by cause, with 60-bucket sparklines and the newest samples; the last hour unless asked otherwise."""
        return answer(await report())

    exporting(routes, "/rejections", RejectionGroup, viewer, rejection_groups)

    @routes.get("/sessions/{namespace}/{name}/{session:path}", response_model=SessionDetail)
    async def get_session(namespace: str, name: str, session: str, caller: Viewer) -> Any:
        """A session and everyone who held it, newest first."""
        return answer(await reader.session(PoolKey(namespace=namespace, name=name), session))

    @routes.get("/migrations/{migration_id:path}", response_model=Migration)
    async def get_migration(migration_id: str, caller: Viewer) -> Any:
        """One migration of a session."""
        return answer(await reader.migration(migration_id))

    @routes.get("/reroutes/{reroute_id:path}", response_model=ReRoute)
    async def get_reroute(reroute_id: str, caller: Viewer) -> Any:
        """One re-route of a request."""
        return answer(await reader.reroute(reroute_id))

    @routes.get("/decisions/{decision_id:path}", response_model=RoutingDecision)
    async def get_decision(decision_id: str, caller: Viewer) -> Any:
        """One sampled decision with its candidates."""
        return answer(await reader.decision(decision_id))

    @routes.get("/audit/{entry_id}", response_model=AuditEntry)
    async def get_audit_entry(entry_id: int, caller: Viewer) -> Any:
        """One entry."""
        return answer(await reader.audit_entry(entry_id))

    return routes
