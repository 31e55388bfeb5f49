"""The history: numbers over time, sessions, moves, decisions, refusals and the audit log."""

from collections.abc import Sequence

from fairlead.tables import PoolKey
from fairlead_client.public.calling import ApiCalls, Query, path_of, segment, subject_of
from fairlead_client.resources.audit import (
    AuditEntry,
    AuditFacets,
    AuditHead,
    AuditVerification,
    AuditView,
    AuditViewChange,
    AuditViewRequest,
    AuditViews,
)
from fairlead_client.resources.comments import Comment, CommentRequest, Comments
from fairlead_client.resources.costs import CostReport
from fairlead_client.resources.decisions import DecisionReasons, RoutingDecision
from fairlead_client.resources.figures import FiguresByInstance, InstanceFigures, RangeFigures
from fairlead_client.resources.moves import Migration, MigrationMatrix, ReRoute
from fairlead_client.resources.pages import Page
from fairlead_client.resources.rejections import RejectionReport
from fairlead_client.resources.scaling import ScalingDecisionItem
from fairlead_client.resources.series import Annotations, Series
from fairlead_client.resources.sessions import KeepSessionRequest, KeptSession, KeptSessions, SessionDetail, SessionSummary
from fairlead_client.resources.trees import SessionTree, TaskList, ThinkTimes


class HistoryCalls(ApiCalls):
    """Calls about the past. `filters` are the query parameters of the endpoint (`from`, `pool`, …)."""

    async def series(
        self,
        metrics: Sequence[str],
        pool: PoolKey | None = None,
        instance: str | None = None,
        *,
        start: str = "now-1h",
        end: str = "now",
        buckets: int | None = None,
    ) -> Series:
        """Return metrics over time. `metrics` are names in SERIES_METRICS; `buckets` is the maximum number of steps per
        line, at most 360.
        """
        query: Query = {"metrics": ",".join(metrics), "from": start, "to": end, "buckets": buckets}
        return await self._call("GET", f"{subject_of(pool, instance)}/series", Series, query=query)

    async def figures(self, pool: PoolKey | None = None, *, start: str = "now-1h", end: str = "now") -> RangeFigures:
        """Return the outcomes of the requests in a time range, of all visible pools or, with `pool`, of one pool."""
        return await self._call("GET", f"{subject_of(pool, None)}/figures", RangeFigures, query={"from": start, "to": end})

    async def instance_figures(self, pool: PoolKey, instance: str, *, start: str = "now-1h", end: str = "now") -> InstanceFigures:
        """Return the figures of one instance over a range."""
        return await self._call("GET", f"{subject_of(pool, instance)}/figures", InstanceFigures, query={"from": start, "to": end})

    async def figures_by_instance(self, pool: PoolKey, *, start: str = "now-1h", end: str = "now") -> FiguresByInstance:
        """Return the figures of each instance of a pool over a range, in one response."""
        return await self._call("GET", f"{subject_of(pool, None)}/instance-figures", FiguresByInstance, query={"from": start, "to": end})

    async def annotations(
        self, pool: PoolKey | None = None, instance: str | None = None, *, start: str = "now-1h", end: str = "now"
    ) -> Annotations:
        return await self._call("GET", f"{subject_of(pool, instance)}/annotations", Annotations, query={"from": start, "to": end})

    async def sessions(self, filters: Query | None = None) -> Page[SessionSummary]:
        return await self._call("GET", "/v1/sessions", Page[SessionSummary], query=filters)

    async def session(self, pool: PoolKey, session: str) -> SessionDetail:
        return await self._call("GET", f"/v1/sessions/{path_of(pool)}/{segment(session)}", SessionDetail)

    async def tasks(self, pool: PoolKey | None = None) -> TaskList:
        """Return the tasks with the newest turns, of all visible pools or, with `pool`, of one pool."""
        return await self._call("GET", "/v1/tasks", TaskList, query={"pool": None if pool is None else str(pool)})

    async def tree(self, pool: PoolKey, session: str) -> SessionTree:
        """Return the tree that a session belongs to."""
        return await self._call("GET", f"/v1/trees/{path_of(pool)}/{segment(session)}", SessionTree)

    async def think_times(self, pool: PoolKey) -> ThinkTimes:
        """Return the times for which sessions of the pool wait between a response and the next turn."""
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/think-times", ThinkTimes)

    async def kept_sessions(self, pool: PoolKey) -> KeptSessions:
        """Return the sessions of the pool whose decisions are all kept."""
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/kept-sessions", KeptSessions)

    async def keep_session(self, pool: PoolKey, request: KeepSessionRequest) -> KeptSession:
        """Keep all decisions of a session for some minutes from now."""
        return await self._call("POST", f"/v1/pools/{path_of(pool)}/kept-sessions", KeptSession, body=request)

    async def let_session_go(self, pool: PoolKey, session: str) -> None:
        """Stop keeping all decisions of the session. From now on only a sample of its decisions is kept."""
        await self._call("DELETE", f"/v1/pools/{path_of(pool)}/kept-sessions/{segment(session)}", None)

    async def migrations(self, filters: Query | None = None) -> Page[Migration]:
        return await self._call("GET", "/v1/migrations", Page[Migration], query=filters)

    async def migration(self, migration_id: str) -> Migration:
        return await self._call("GET", f"/v1/migrations/{segment(migration_id)}", Migration)

    async def migration_matrix(self, filters: Query | None = None) -> MigrationMatrix:
        return await self._call("GET", "/v1/migrations/matrix", MigrationMatrix, query=filters)

    async def reroutes(self, filters: Query | None = None) -> Page[ReRoute]:
        return await self._call("GET", "/v1/reroutes", Page[ReRoute], query=filters)

    async def reroute(self, reroute_id: str) -> ReRoute:
        return await self._call("GET", f"/v1/reroutes/{segment(reroute_id)}", ReRoute)

    async def reroute_matrix(self, filters: Query | None = None) -> MigrationMatrix:
        return await self._call("GET", "/v1/reroutes/matrix", MigrationMatrix, query=filters)

    async def decisions(self, filters: Query | None = None) -> Page[RoutingDecision]:
        return await self._call("GET", "/v1/decisions", Page[RoutingDecision], query=filters)

    async def decision(self, decision_id: str) -> RoutingDecision:
        return await self._call("GET", f"/v1/decisions/{segment(decision_id)}", RoutingDecision)

    async def decision_reasons(self, pool: PoolKey, *, newest: int = 100) -> DecisionReasons:
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/decision-reasons", DecisionReasons, query={"newest": newest})

    async def scaling_decisions(self, filters: Query | None = None) -> Page[ScalingDecisionItem]:
        return await self._call("GET", "/v1/scaling-decisions", Page[ScalingDecisionItem], query=filters)

    async def scaling_decision(self, decision_id: str) -> ScalingDecisionItem:
        return await self._call("GET", f"/v1/scaling-decisions/{segment(decision_id)}", ScalingDecisionItem)

    async def rejections(self, filters: Query | None = None) -> RejectionReport:
        return await self._call("GET", "/v1/rejections", RejectionReport, query=filters)

    async def cost(self, filters: Query | None = None) -> CostReport:
        """Return the cost of instances; the filter `by` is a CostGroup."""
        return await self._call("GET", "/v1/cost", CostReport, query=filters)

    async def audit(self, filters: Query | None = None) -> Page[AuditEntry]:
        return await self._call("GET", "/v1/audit", Page[AuditEntry], query=filters)

    async def audit_facets(self, filters: Query | None = None) -> AuditFacets:
        """Return the values that occur in the audit entries of a range, each with its number of entries."""
        return await self._call("GET", "/v1/audit/facets", AuditFacets, query=filters)

    async def audit_entry(self, entry_id: int) -> AuditEntry:
        return await self._call("GET", f"/v1/audit/{entry_id}", AuditEntry)

    async def audit_verification(self, kept: AuditHead | None = None) -> AuditVerification:
        query: Query | None = None if kept is None else {"head_id": kept.id, "head_chain": kept.chain}
        return await self._call("GET", "/v1/audit/verification", AuditVerification, query=query)

    async def audit_head(self) -> AuditHead:
        return await self._call("GET", "/v1/audit/head", AuditHead)

    async def audit_views(self) -> AuditViews:
        """Return the saved views of the audit log: the caller's own views, and views that other people share."""
        return await self._call("GET", "/v1/audit-views", AuditViews)

    async def save_audit_view(self, request: AuditViewRequest) -> AuditView:
        return await self._call("POST", "/v1/audit-views", AuditView, body=request)

    async def change_audit_view(self, view_id: str, change: AuditViewChange) -> AuditView:
        return await self._call("PATCH", f"/v1/audit-views/{segment(view_id)}", AuditView, body=change)

    async def comments(self, filters: Query | None = None) -> Comments:
        """Return the comments that people wrote; `filters` are pool, plan, from and to."""
        return await self._call("GET", "/v1/comments", Comments, query=filters)

    async def add_comment(self, pool: PoolKey, request: CommentRequest) -> Comment:
        return await self._call("POST", f"/v1/pools/{path_of(pool)}/comments", Comment, body=request)

    async def delete_comment(self, comment: str) -> None:
        await self._call("DELETE", f"/v1/comments/{segment(comment)}", None)

    async def delete_audit_view(self, view_id: str) -> None:
        await self._call("DELETE", f"/v1/audit-views/{segment(view_id)}", None)
