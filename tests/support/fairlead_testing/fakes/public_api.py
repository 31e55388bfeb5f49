"""The public API as an ASGI app over `fake_public_data.World`: paging, filters, CSV, plans with state, sessions
with roles, a live stream.

It answers what `tests/contract/public_api` holds it and the real API to, so that the web UI can be tested without
Postgres. A path of the real API that nobody has made data for answers an example of its type. Tokens: `viewer-token`,
`operator-token`, `admin-token`; one-time login tokens are in `login_links`.
"""

import asyncio
import csv
import io
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec
from fastapi.routing import APIRoute
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fairlead.reports import BindingReason, DecisionReason, MoveOutcome
from fairlead_api.app import create_api
from fairlead_api.settings import Settings
from fairlead_client.resources.access import (
    PEOPLE,
    AccessRole,
    Identity,
    LoginLink,
    LoginLinkRequest,
    LoginRequest,
    TokenItem,
    TokenRequest,
    WebSession,
)
from fairlead_client.resources.audit import AuditVerification
from fairlead_client.resources.heatmaps import METRICS
from fairlead_client.resources.instances import InstanceDetail
from fairlead_client.resources.moves import MigrationFlow, MigrationMatrix, Move, TimelineBucket
from fairlead_client.resources.pages import Page
from fairlead_client.resources.plans import ApplyRequest, Plan, PlanState, ScalePlanRequest
from fairlead_client.resources.pools import PoolDetail
from fairlead_client.resources.problems import Problem
from fairlead_client.resources.rejections import RejectionReport
from fairlead_client.resources.sessions import SessionDetail
from fairlead_testing.builders.wire_examples import example
from fairlead_testing.fakes.loads import HOSTILE, INSTANCES
from fairlead_testing.fakes.plans import PlanBook
from fairlead_testing.fakes.public_data import World
from fairlead_web.time_ranges import parse_range

Endpoint = Callable[[Request], Awaitable[Response]]
FILTER_WORDS: dict[str, type[StrEnum]] = {"trigger": BindingReason, "outcome": MoveOutcome, "reason": DecisionReason}
"""Filters that take one of a few words."""


class Refusal(Exception):
    """A problem document on its way out."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        kind: str = "about:blank",
        remedy: str | None = None,
        field: str | None = None,
        value: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.problem = Problem(
            type=kind, title=title, status=status, detail=detail, request_id="r-fake", remedy=remedy, field=field, value=value
        )


class FakePublicApi:
    """State and endpoints.

    `broken` holds path fragments that answer 503; `requests` logs (method, path); `stale_seconds`
    marks answers as remembered.
    """

    def __init__(self, world: World, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.world = world
        self.clock = clock
        self.sessions: dict[str, Identity] = {}
        self.tokens = {f"{role}-token": Identity(subject=f"{role}-person", role=role, source="token", expires_at=None) for role in PEOPLE}
        self.tokens["hostile-token"] = Identity(subject=HOSTILE, role=AccessRole.VIEWER, source="token", expires_at=None)
        self.login_links = {"flt_once": AccessRole.OPERATOR}
        self.book = PlanBook(world, clock)
        self.broken: set[str] = set()
        self.requests: list[tuple[str, str]] = []
        self.live_queues: list[asyncio.Queue[bytes]] = []
        self.live_limit = 3
        self.stale_seconds: int | None = None
        self.app = Starlette(routes=self._routes())

    def push(self, topic: str, items: Sequence[object]) -> None:
        """Send one live event to every open stream."""
        data = f"event: {topic}\nid: {len(self.requests)}\ndata: {msgspec.json.encode(items).decode()}\n\n".encode()
        for queue in self.live_queues:
            queue.put_nowait(data)

    def end_streams(self) -> None:
        """Closes every open stream, as a restarting server does."""
        for queue in self.live_queues:
            queue.put_nowait(b"")

    def _routes(self) -> list[Route]:
        pool = "/v1/pools/{namespace}/{name}"
        lists: dict[str, Callable[[Request], Sequence[Any]]] = {
            "/v1/pools": lambda _: [self.world.pool(name) for name in self.world.pools_known],
            f"{pool}/instances": lambda request: self.world.instances(self._pool(request)),
            f"{pool}/revisions": lambda request: self.world.revisions(self._pool(request)),
            f"{pool}/events": lambda request: self.world.events(self._pool(request)),
            f"{pool}/slo": lambda request: self.world.slo(self._pool(request)),
            "/v1/sessions": self._sessions,
            "/v1/migrations": lambda request: self._moves(request, self.world.migrations()),
            "/v1/reroutes": lambda request: self._moves(request, self.world.reroutes()),
            "/v1/decisions": self._decisions,
            "/v1/rejections": lambda request: self._rejections(request).groups,
            "/v1/audit": self._audit,
        }
        routes = [
            Route("/v1/login", self._open(self._login), methods=["POST"]),
            Route("/v1/logout", self._guard(self._logout), methods=["POST"]),
            Route("/v1/whoami", self._guard(self._whoami)),
            Route("/v1/login-links", self._guard(self._login_link, AccessRole.ADMIN), methods=["POST"]),
            Route("/v1/tokens", self._guard(self._list_tokens, AccessRole.ADMIN), methods=["GET"]),
            Route("/v1/tokens", self._guard(self._create_token, AccessRole.ADMIN), methods=["POST"]),
            Route("/v1/tokens/{token}", self._guard(self._revoke, AccessRole.ADMIN), methods=["DELETE"]),
            Route("/v1/migrations/matrix", self._guard(self._matrix)),
            Route("/v1/reroutes/matrix", self._guard(self._reroute_matrix)),
            Route("/v1/audit/verification", self._guard(self._verification)),
            Route("/v1/rejections", self._guard(self._report)),
            Route("/v1/live", self._guard(self._live)),
            Route(f"{pool}/heatmap", self._guard(self._heatmap)),
            Route(f"{pool}/plans", self._guard(self._plan_scale, AccessRole.OPERATOR), methods=["POST"]),
            Route("/v1/plans/{plan}", self._guard(self._show_plan)),
            Route("/v1/plans/{plan}/apply", self._guard(self._apply, AccessRole.OPERATOR), methods=["POST"]),
            Route("/v1/plans/{plan}/undo", self._guard(self._undo, AccessRole.OPERATOR), methods=["POST"]),
        ]
        for path, source in lists.items():
            routes.append(Route(path, self._guard(self._paged(source)), methods=["GET"]))
            routes.append(Route(f"{path}.json", self._guard(self._paged(source)), methods=["GET"]))
            routes.append(Route(f"{path}.csv", self._guard(self._csv(source)), methods=["GET"]))
        routes += [
            Route(f"{pool}/instances/{{instance}}", self._guard(self._instance)),
            Route(pool, self._guard(self._pool_detail)),
            Route("/v1/sessions/{namespace}/{name}/{session:path}", self._guard(self._session)),
            Route("/v1/migrations/{id}", self._guard(self._one(self.world.migrations))),
            Route("/v1/reroutes/{id}", self._guard(self._one(self.world.reroutes))),
            Route("/v1/decisions/{id}", self._guard(self._one(self.world.decisions))),
            Route("/v1/audit/{id}", self._guard(self._one(self.world.audit))),
        ]
        made = {_template(route.path) for route in routes}
        real = {_template(path) for path in public_paths()}
        invented = {_template(route.path) for route in routes if "GET" in (route.methods or ())} - real
        assert not invented, f"the API has no {invented}"
        unmade = {path: kind for path, kind in public_paths().items() if _template(path) not in made}
        return [*(Route(path, self._guard(_example_of(kind))) for path, kind in unmade.items()), *routes]

    # --- guards ---

    def _open(self, endpoint: Endpoint) -> Endpoint:
        async def handle(request: Request) -> Response:
            self.requests.append((request.method, request.url.path))
            try:
                if any(part in request.url.path for part in self.broken):
                    raise Refusal(503, "The database is away", "Postgres does not answer; nothing was lost.", "unavailable")
                answer = await endpoint(request)
                if self.stale_seconds is not None:
                    answer.headers["x-fairlead-stale"], answer.headers["age"] = "database-unavailable", str(self.stale_seconds)
                return answer
            except Refusal as refusal:
                return Response(msgspec.json.encode(refusal.problem), refusal.problem.status, media_type="application/problem+json")

        return handle

    def _guard(self, endpoint: Endpoint, role: AccessRole = AccessRole.VIEWER) -> Endpoint:
        async def handle(request: Request) -> Response:
            identity = self._identity(request)
            if not identity.role.reaches(role):
                raise Refusal(403, "Role too low", f"This needs the role {role}; {identity.subject} is {identity.role}.", "forbidden")
            return await endpoint(request)

        return self._open(handle)

    def _identity(self, request: Request) -> Identity:
        secret = request.headers.get("authorization", "").removeprefix("Bearer ")
        found = self.sessions.get(secret) or self.tokens.get(secret)
        if found is None:
            raise Refusal(401, "Sign in first", "The session has ended or the token is unknown.", "unauthenticated")
        return found

    # --- identity ---

    async def _login(self, request: Request) -> Response:
        token = msgspec.json.decode(await request.body(), type=LoginRequest).token
        if token in self.login_links:
            role = self.login_links.pop(token)
            identity = Identity(subject="sandbox", role=role, source="login-link", expires_at=self.clock() + timedelta(hours=8))
        elif token in self.tokens:
            identity = replace(self.tokens[token], source="web", expires_at=self.clock() + timedelta(hours=8))
        else:
            raise Refusal(
                401,
                "This link cannot be used",
                "It was used before, or is older than 10 minutes.",
                "login-link-expired",
                "Ask for a new one.",
            )
        session = f"fls_{len(self.sessions)}_{identity.role}"
        self.sessions[session] = identity
        assert identity.expires_at is not None
        return _json(WebSession(token=session, identity=identity, expires_at=identity.expires_at), 201)

    async def _logout(self, request: Request) -> Response:
        self.sessions.pop(request.headers["authorization"].removeprefix("Bearer "), None)
        return Response(status_code=204)

    async def _whoami(self, request: Request) -> Response:
        return _json(self._identity(request))

    async def _login_link(self, request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=LoginLinkRequest)
        self.login_links["flt_new"] = asked.role
        return _json(
            LoginLink(token="flt_new", path="/login?token=flt_new", expires_at=self.clock() + timedelta(minutes=asked.minutes)), 201
        )

    async def _list_tokens(self, request: Request) -> Response:
        return _json(Page(items=self.world.tokens(), total=2))

    async def _create_token(self, request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=TokenRequest)
        now = self.clock()
        made = TokenItem(
            id="t-3",
            name=asked.name,
            role=asked.role,
            created_at=now,
            created_by="admin-person",
            expires_at=now + timedelta(days=asked.days),
            last_used_at=None,
            revoked_at=None,
            secret="flt_shown_once",
        )
        return _json(made, 201)

    async def _revoke(self, request: Request) -> Response:
        if request.path_params["token"] not in {token.id for token in self.world.tokens()}:
            raise Refusal(404, "No such token", f"There is no token {request.path_params['token']}.")
        return Response(status_code=204)

    # --- lists ---

    def _paged(self, source: Callable[[Request], Sequence[Any]]) -> Endpoint:
        async def handle(request: Request) -> Response:
            items = source(request)
            first, limit = int(request.query_params.get("cursor", 0)), min(100, int(request.query_params.get("limit", 50)))
            shown = list(items[first : first + limit])
            following = first + limit
            return _json(Page(items=shown, next_cursor=str(following) if following < len(items) else None, total=len(items)))

        return handle

    def _csv(self, source: Callable[[Request], Sequence[Any]]) -> Endpoint:
        async def handle(request: Request) -> Response:
            items = source(request)

            async def lines() -> AsyncIterator[bytes]:
                names = [field.name for field in fields(items[0])] if items else []
                for row in [names, *([_text(getattr(item, name)) for name in names] for item in items)]:
                    buffer = io.StringIO()
                    csv.writer(buffer).writerow(row)
                    yield buffer.getvalue().encode()

            return StreamingResponse(lines(), media_type="text/csv")

        return handle

    def _one(self, source: Callable[[], Sequence[Any]]) -> Endpoint:
        async def handle(request: Request) -> Response:
            wanted = request.path_params["id"]
            found = next((item for item in source() if str(item.id) == wanted), None)
            if found is None:
                raise Refusal(404, "Not found", f"There is no {request.url.path.split('/')[2].rstrip('s')} {wanted}.")
            return _json(found)

        return handle

    def _pool(self, request: Request) -> str:
        name = f"{request.path_params['namespace']}/{request.path_params['name']}"
        if name not in INSTANCES:
            raise Refusal(404, "No such pool", f"There is no pool {name}.", remedy="The list of pools has those that exist.")
        return name

    def _filtered(self, request: Request, items: Sequence[Any], names: Sequence[str]) -> list[Any]:
        wanted = {name: request.query_params[name] for name in names if request.query_params.get(name)}
        for name, words in FILTER_WORDS.items():
            if name in wanted and wanted[name] not in set(words):
                known = ", ".join(repr(word.value) for word in words)
                raise Refusal(422, "Cannot be used", f"{name}: write one of {known}", "invalid-input", known, name, wanted[name])
        return [item for item in items if all(str(getattr(item, name)) == value for name, value in wanted.items())]

    def _in_range(self, request: Request, items: Sequence[Any]) -> list[Any]:
        if "from" not in request.query_params:
            return list(items)
        chosen = parse_range(request.query_params["from"], request.query_params.get("to"), self.clock())
        return [item for item in items if chosen.start <= item.at <= chosen.end + timedelta(seconds=2)]

    def _sessions(self, request: Request) -> list[Any]:
        wanted = request.query_params.get("q", "").lower()
        return [one for one in self._filtered(request, self.world.sessions(), ("pool", "instance")) if wanted in one.session.lower()]

    def _moves(self, request: Request, moves: Sequence[Any]) -> list[Any]:
        names = ("pool", "source", "target", "trigger", "outcome", "session")
        paid_off = request.query_params.get("paid_off")
        found = [move for move in moves if paid_off is None or move.paid_off is (paid_off == "true")]
        return self._in_range(request, self._filtered(request, found, names))

    def _decisions(self, request: Request) -> list[Any]:
        found = self._in_range(request, self._filtered(request, self.world.decisions(), ("pool", "session", "reason")))
        wanted = request.query_params.get("instance")
        return [one for one in found if wanted in (None, one.chosen)]

    def _audit(self, request: Request) -> list[Any]:
        return self._in_range(request, self._filtered(request, self.world.audit(), ("actor", "action", "object")))

    async def _matrix(self, request: Request) -> Response:
        return self._flows(self._moves(request, self.world.migrations()))

    async def _reroute_matrix(self, request: Request) -> Response:
        return self._flows(self._moves(request, self.world.reroutes()))

    def _flows(self, found: Sequence[Move]) -> Response:
        flows: dict[tuple[str, str], int] = {}
        triggers: dict[BindingReason, int] = {}
        buckets: dict[datetime, dict[BindingReason, int]] = {}
        for move in found:
            flows[move.source, move.target] = flows.get((move.source, move.target), 0) + 1
            triggers[move.trigger] = triggers.get(move.trigger, 0) + 1
            at = datetime.fromtimestamp(move.at.timestamp() // 60 * 60, tz=UTC)
            bucket = buckets.setdefault(at, {})
            bucket[move.trigger] = bucket.get(move.trigger, 0) + 1
        return _json(
            MigrationMatrix(
                flows=[MigrationFlow(source=source, target=target, count=count) for (source, target), count in sorted(flows.items())],
                by_trigger=triggers,
                timeline=[TimelineBucket(at=at, counts=counts) for at, counts in sorted(buckets.items())],
                total=len(found),
            )
        )

    def _rejections(self, request: Request) -> RejectionReport:
        chosen = parse_range(request.query_params.get("from"), request.query_params.get("to"), self.clock())
        groups = self._filtered(request, self.world.rejections(chosen.start, chosen.end), ("pool",))
        return RejectionReport(groups=groups, total=sum(group.count for group in groups), served=51_200)

    async def _report(self, request: Request) -> Response:
        return _json(self._rejections(request))

    async def _verification(self, request: Request) -> Response:
        return _json(AuditVerification(intact=True, entries=len(self.world.audit()), first_broken=None))

    # --- details ---

    async def _pool_detail(self, request: Request) -> Response:
        pool = self._pool(request)
        return _json(
            PoolDetail(
                pool=self.world.pool(pool),
                spec=self.world.spec(pool),
                generation=4,
                conditions=self.world.conditions(pool),
                instances=self.world.instances(pool),
                live_routers=2,
                table_acknowledged=True,
            )
        )

    async def _instance(self, request: Request) -> Response:
        pool, name = self._pool(request), request.path_params["instance"]
        if name not in INSTANCES[pool]:
            raise Refusal(404, "No such instance", f"There is no instance {name} in {pool}.")
        one = self.world.instance(pool, name)
        return _json(InstanceDetail(instance=one, transitions=self.world.transitions(one)))

    async def _session(self, request: Request) -> Response:
        pool, wanted = self._pool(request), request.path_params["session"]
        found = next((one for one in self.world.sessions() if one.pool == pool and one.session == wanted), None)
        if found is None:
            raise Refusal(404, "No such session", f"There is no session {wanted} in {pool}.")
        return _json(SessionDetail(session=found, history=self.world.history(found)))

    async def _heatmap(self, request: Request) -> Response:
        query = request.query_params
        if query.get("metric", "running") not in METRICS:
            raise Refusal(422, "Unknown metric", f"metric: {query['metric']!r}", field="metric")
        chosen = parse_range(query.get("from"), query.get("to"), self.clock())
        columns = min(360, int(query.get("columns", 120)))
        pool, metric = self._pool(request), query.get("metric", "running")
        return _json(
            self.world.heatmap(pool, metric, chosen.start, chosen.end, columns, query.get("aggregate", "max"), query.get("sort", "name"))
        )

    # --- plans ---

    async def _plan_scale(self, request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=ScalePlanRequest)
        if asked.replicas > 64:
            raise Refusal(
                422,
                "Refused by the schema",
                f"spec.replicas: {asked.replicas} is above maxReplicas (64).",
                "invalid",
                "Write at most 64.",
                "replicas",
            )
        return _json(self.book.make(self._pool(request), asked.replicas, self._identity(request).subject), 201)

    def _known(self, request: Request) -> Plan:
        plan = self.book.plans.get(request.path_params["plan"])
        if plan is None:
            raise Refusal(404, "No such plan", f"There is no plan {request.path_params['plan']}.")
        return plan

    async def _show_plan(self, request: Request) -> Response:
        return _json(self._known(request))

    async def _apply(self, request: Request) -> Response:
        plan, body = self._known(request), msgspec.json.decode(await request.body(), type=ApplyRequest)
        who = self._identity(request).subject
        if plan.state is PlanState.APPLIED and plan.applied_by == who:
            return _json(plan)
        if plan.state is not PlanState.OPEN or plan.expires_at <= self.clock():
            raise Refusal(
                409, "The plan can no longer be applied", "The pool was changed by grace at 10:04 (replicas 8 → 9).", "plan-changed"
            )
        if plan.effect.heavy and (body.confirm != plan.pool.split("/")[1] or not body.reason):
            raise Refusal(
                422,
                "Confirmation needed",
                f"confirm: write {plan.pool.split('/')[1]!r} and give a reason.",
                "confirmation",
                field="confirm",
            )
        self.book.applied.append(plan.id)
        self.world.desired[plan.pool] = self.book.targets[plan.id]
        now = self.clock()
        done = replace(plan, state=PlanState.APPLIED, applied_at=now, applied_by=who, undo_until=now + timedelta(hours=1))
        self.book.plans[plan.id] = done
        return _json(done)

    async def _undo(self, request: Request) -> Response:
        plan = self._known(request)
        if plan.state is not PlanState.APPLIED:
            raise Refusal(409, "Nothing to undo", "This plan has not been applied.", "not-applied")
        return _json(self.book.make(plan.pool, int(plan.diff[0]["before"]), self._identity(request).subject, plan.id), 201)

    # --- live ---

    async def _live(self, request: Request) -> Response:
        async def stream() -> AsyncIterator[bytes]:
            if len(self.live_queues) >= self.live_limit:
                yield b"event: poll\ndata: {}\n\n"
                return
            queue: asyncio.Queue[bytes] = asyncio.Queue()
            self.live_queues.append(queue)
            try:
                yield b": welcome\n\n"
                while chunk := await queue.get():
                    yield chunk
            finally:
                self.live_queues.remove(queue)

        return StreamingResponse(stream(), media_type="text/event-stream")


@cache
def public_paths() -> dict[str, Any]:
    """Every path below /v1 that the real API reads from, with the type of its answer (None where it is no JSON).

    It needs no database for that.
    """
    api = create_api(Settings(database_url="postgresql+psycopg://nobody@localhost/none"))
    included = [route.original_router.routes for route in api.routes if hasattr(route, "original_router")]
    known = [one for routes in included for one in routes if isinstance(one, APIRoute) and one.path.startswith("/v1/")]
    return {one.path: one.response_model for one in known if "GET" in (one.methods or ())}


def _template(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def _example_of(kind: Any) -> Endpoint:
    """What answers for a path that nobody has made data for: an example of its type, so that a new
    page can be opened at once.
    """

    async def handle(_: Request) -> Response:
        return _json(example(kind))

    return handle


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, str) else json.dumps(msgspec.to_builtins(value))
