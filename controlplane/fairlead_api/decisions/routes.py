"""Routes of sampled routing decisions, which show why a request was sent to its instance. Also routes of sessions for
which every decision is kept for some minutes.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Depends, Query

from fairlead.errors import InvalidInput
from fairlead.reports.decisions import DecisionReason, KeptFor, RequestOutcome
from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.decisions.shadow_store import PostgresShadows
from fairlead_api.decisions.store import DecisionFilter, PostgresDecisions, PostgresKeptSessions
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import answer, seen
from fairlead_api.http.bodies import known_fields
from fairlead_api.http.documents import Ask, document
from fairlead_api.http.listing import Fetch, From, To, listing
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import Conflict
from fairlead_api.infra.session_names import SessionNames
from fairlead_api.infra.times import parse_range
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.decisions import DecisionReasons, ReasonCount, RoutingDecision
from fairlead_client.resources.sessions import KeepSessionRequest, KeptSession, KeptSessions
from fairlead_client.resources.shadows import ShadowHour, ShadowReport

MOST_SESSIONS = 20
"""Maximum number of sessions per pool whose decisions are all kept."""
MOST_MINUTES = 60
LONGEST_SESSION = 500


class Keeping:
    """Keeps every routing decision of a session for some minutes. The number of sessions and the time are bounded. Each
    start and end is audited and sent to routers.
    """

    def __init__(self, store: PostgresKeptSessions, names: SessionNames) -> None:
        self._store = store
        self._names = names

    async def kept(self, pool: PoolKey, now: datetime) -> KeptSessions:
        return KeptSessions(pool=str(pool), sessions=await self._store.kept(pool, now))

    async def keep(self, pool: PoolKey, request: KeepSessionRequest, caller: Caller, now: datetime) -> KeptSession:
        """Start to keep every decision of a session. The session need not exist yet. Raises InvalidInput, NotFound,
        Conflict.
        """
        if not request.session or len(request.session) > LONGEST_SESSION or "\0" in request.session:
            raise InvalidInput("session", request.session, f"write the session's name, of at most {LONGEST_SESSION} characters")
        if not 1 <= request.minutes <= MOST_MINUTES:
            raise InvalidInput("minutes", request.minutes, f"write 1 to {MOST_MINUTES}")
        until = now + timedelta(minutes=request.minutes)
        named = await self._names.identity(pool, request.session)
        session = KeptSession(session=named, until=until, by=caller.identity.subject)
        if not await self._store.keep(pool, session, caller, now, MOST_SESSIONS):
            detail = f"the decisions of {MOST_SESSIONS} sessions of {pool} are kept already; stop keeping one of them, or wait"
            raise Conflict("too-many-kept-sessions", detail)
        return session

    async def let_go(self, pool: PoolKey, session: str, caller: Caller, now: datetime) -> None:
        """Stop keeping every decision of a session before the time is over. Raises NotFound, Conflict."""
        as_written = any(one.session == session for one in await self._store.kept(pool, now))
        named = session if as_written else await self._names.identity(pool, session)
        await self._store.let_go(pool, named, caller, now)


MOST_COUNTED = 1000
"""Maximum number of decisions whose reasons one response counts."""


def decision_routes(
    guard: Guard, reader: PostgresDecisions, shadows: PostgresShadows, names: SessionNames, clock: Callable[[], datetime]
) -> Routes:
    """Return the routes under /v1 of routing decisions, and of the decisions that shadow policies would have made."""
    routes = Routes(prefix="/v1", tags=["history"])
    viewer = guard.needs(AccessRole.VIEWER, somewhere=True)

    async def chosen(
        caller: Annotated[Caller, Depends(viewer)],
        pool: str | None = None,
        instance: str | None = None,
        session: str | None = None,
        reason: DecisionReason | None = None,
        priority_class: str | None = None,
        kept: KeptFor | None = None,
        outcome: RequestOutcome | None = None,
        trace: str | None = None,
        request: str | None = None,
        start: From = None,
        end: To = None,
    ) -> Fetch:
        begun, ended = parse_range(start, end, clock())
        wanted = DecisionFilter(
            pool=pool,
            instance=instance,
            session=await names.filtered(pool, session, caller.sight),
            reason=reason,
            priority_class=priority_class,
            kept=kept,
            outcome=outcome,
            trace=trace,
            request=request,
            start=begun,
            end=ended,
        )
        return lambda span: reader.decisions(wanted, span)

    listing(routes, "/decisions", RoutingDecision, viewer, chosen, by="-at")

    @routes.get("/decisions/{decision_id:path}", response_model=RoutingDecision)
    async def get_decision(decision_id: str, caller: Annotated[Caller, Depends(viewer)]) -> Any:
        """One sampled routing decision with its candidates."""
        return answer(seen(caller, await reader.decision(decision_id), "decision", decision_id))

    async def get_decision_reasons(namespace: str, name: str, newest: Annotated[int, Query(ge=1, le=MOST_COUNTED)] = 100) -> Ask:
        """For each reason of a routing decision, the number of a pool's sampled decisions that had it. Only the newest
        decisions are counted, at most `newest`.
        """
        return lambda _: reader.reasons(PoolKey(namespace=namespace, name=name), newest)

    path, needs = "/pools/{namespace}/{name}/decision-reasons", guard.needs(AccessRole.VIEWER)
    document(routes, path, DecisionReasons, needs, get_decision_reasons, ReasonCount, lambda found: found.reasons)

    async def get_shadows(namespace: str, name: str, start: From = "now-1d", end: To = "now") -> Ask:
        """The decisions that shadow policies would have made: in total and by hour, over at most the newest 50,000
        decisions for which shadow policies were evaluated. A shadow policy does not decide where a request is sent.

        The figures are predictions: a request that a shadow policy would have sent to another instance was never sent
        there.
        """
        begun, ended = parse_range(start or "now-1d", end or "now", clock())
        assert begun is not None
        assert ended is not None
        return lambda _: shadows.report(PoolKey(namespace=namespace, name=name), begun, ended)

    document(routes, "/pools/{namespace}/{name}/shadows", ShadowReport, needs, get_shadows, ShadowHour, lambda found: found.hours)
    return routes


def kept_session_routes(guard: Guard, keeping: Keeping, clock: Callable[[], datetime]) -> Routes:
    """Return the routes of /v1/pools/{namespace}/{name}/kept-sessions."""
    routes = Routes(prefix="/v1", tags=["history"])
    Viewer = Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER))]  # noqa: N806 - it is a type
    Operator = Annotated[Caller, Depends(guard.needs(AccessRole.OPERATOR))]  # noqa: N806 - it is a type
    path = "/pools/{namespace}/{name}/kept-sessions"

    @routes.get(path, response_model=KeptSessions)
    async def get_kept_sessions(namespace: str, name: str, caller: Viewer) -> Any:
        """The pool's sessions for which every routing decision is kept now."""
        return answer(await keeping.kept(PoolKey(namespace=namespace, name=name), clock()))

    @routes.post(path, status_code=201, dependencies=[Depends(known_fields(KeepSessionRequest))])
    async def keep_session(namespace: str, name: str, body: KeepSessionRequest, caller: Operator) -> KeptSession:
        """Keeps every routing decision of a session from now on, for the given number of minutes."""
        return await keeping.keep(PoolKey(namespace=namespace, name=name), body, caller, clock())

    @routes.delete(path + "/{session:path}", status_code=204)
    async def let_session_go(namespace: str, name: str, session: str, caller: Operator) -> None:
        """Stops keeping every routing decision of the session. From now on only a sample is kept."""
        await keeping.let_go(PoolKey(namespace=namespace, name=name), session, caller, clock())

    return routes


def decisions_of(infra: Infra) -> PostgresDecisions:
    """Return the store of routing decisions."""
    return PostgresDecisions(infra.reads, infra.policies, infra.settings.retention.decisions_days)


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of routing decisions, and of sessions for which every decision is kept."""
    names = SessionNames(infra.reads)
    keeping = Keeping(PostgresKeptSessions(infra.control), names)
    decided = decision_routes(guard, decisions_of(infra), PostgresShadows(infra.reads), names, infra.clock)
    return Feature(routes=(decided, kept_session_routes(guard, keeping, infra.clock)))
