"""Sessions, moves and their matrices, decisions, rejections and the audit log, filtered as a request asks."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead.instances import Role
from fairlead.reports.bindings import BindingReason
from fairlead.reports.decisions import DecisionReason, KeptFor, RequestOutcome
from fairlead.reports.moves import MoveOutcome
from fairlead.scaling.recommendations import Controller, Verdict
from fairlead.session_identities import name_of, tenant_of
from fairlead_client.resources.audit import AuditFacet, AuditFacets, AuditVerification
from fairlead_client.resources.costs import CostGroup
from fairlead_client.resources.decisions import DecisionReasons, ReasonCount
from fairlead_client.resources.moves import MigrationFlow, MigrationMatrix, Move, MovesEffect, TimelineBucket
from fairlead_client.resources.problems import SessionOfKey
from fairlead_client.resources.rejections import RejectionReport
from fairlead_client.resources.sessions import KeepSessionRequest, KeptSession, KeptSessions, SessionDetail
from fairlead_testing.fakes.public_api.answers import Endpoint, Refusal, Source, as_json, document_routes, list_routes, one_of
from fairlead_testing.fakes.public_api.pools import POOL, pool_named
from fairlead_testing.fakes.public_data import costs, trees
from fairlead_testing.fakes.public_data.world import World
from fairlead_web.text.time_ranges import parse_range

FILTER_WORDS: dict[str, type[StrEnum]] = {
    "trigger": BindingReason,
    "reason": DecisionReason,
    "kept": KeptFor,
    "role": Role,
    "controller": Controller,
    "verdict": Verdict,
}
"""The filters whose values must be words of an enumeration."""


class History:
    def __init__(self, world: World, clock: Callable[[], datetime]) -> None:
        self._world = world
        self._clock = clock
        self._kept_sessions: dict[tuple[str, str], KeptSession] = {}

    def routes(self, guard: Callable[[Endpoint], Endpoint], operators: Callable[[Endpoint], Endpoint]) -> list[Route]:
        lists: dict[str, Source] = {
            "/v1/sessions": self._sessions,
            "/v1/migrations": lambda request: self._moves(request, self._world.migrations()),
            "/v1/reroutes": lambda request: self._moves(request, self._world.reroutes()),
            "/v1/decisions": self._decisions,
            "/v1/scaling-decisions": self._scaling,
            "/v1/audit": self._audit,
        }
        return [
            *document_routes("/v1/migrations/matrix", self._matrix, "flows", guard),
            *document_routes("/v1/reroutes/matrix", self._reroute_matrix, "flows", guard),
            Route("/v1/audit/verification", guard(self._verification)),
            Route("/v1/audit/facets", guard(self._facets)),
            Route("/v1/audit/export", guard(self._export)),
            *document_routes("/v1/pools/{namespace}/{name}/decision-reasons", self._reasons, "reasons", guard),
            *document_routes("/v1/rejections", self._report, "groups", guard),
            *document_routes("/v1/cost", self._cost, "lines", guard),
            Route("/v1/tasks", guard(self._tasks)),
            Route("/v1/trees/{namespace}/{name}/{session:path}", guard(self._tree)),
            Route(f"{POOL}/think-times", guard(self._think_times)),
            *(route for path, source in lists.items() for route in list_routes(path, source, guard)),
            Route("/v1/sessions/{namespace}/{name}/{session:path}", guard(self._session)),
            Route(f"{POOL}/kept-sessions", guard(self._kept), methods=["GET"]),
            Route(f"{POOL}/kept-sessions", operators(self._keep), methods=["POST"]),
            Route(f"{POOL}/kept-sessions/{{session:path}}", operators(self._let_go), methods=["DELETE"]),
            Route("/v1/migrations/{id}", guard(one_of(self._world.migrations))),
            Route("/v1/reroutes/{id}", guard(one_of(self._world.reroutes))),
            Route("/v1/decisions/{id}", guard(one_of(self._world.decisions))),
            Route("/v1/scaling-decisions/{id}", guard(one_of(self._world.scaling_decisions))),
            Route("/v1/audit/{id}", guard(one_of(self._world.audit))),
        ]

    def _sessions(self, request: Request) -> list[Any]:
        wanted = request.query_params.get("q", "").lower()
        return [one for one in _filtered(request, self._world.sessions(), ("pool", "instance")) if wanted in one.session.lower()]

    async def _session(self, request: Request) -> Response:
        pool, wanted = pool_named(request), self._named(request)
        found = next((one for one in self._world.sessions() if one.pool == pool and one.session == wanted), None)
        if found is None:
            raise Refusal(404, "No such session", f"There is no session {wanted} in {pool}.")
        return as_json(SessionDetail(session=found, history=self._world.history(found)))

    def _named(self, request: Request) -> str:
        """Return the identity of the session that the path names."""
        pool, wanted = pool_named(request), request.path_params["session"]
        own = [one for one in self._world.sessions() if one.pool == pool]
        found = [one for one in own if name_of(one.session) == wanted]
        if len(found) < 2 or any(one.session == wanted for one in own):
            return wanted if len(found) != 1 else found[0].session
        listed = [SessionOfKey(pool=pool, session=one.session, key=one.key or tenant_of(one.session)) for one in found]
        detail = f"{len(found)} sessions of {pool} have the name {wanted!r}: " + ", ".join(
            f"{one.session} (key {one.key})" for one in listed
        )
        raise Refusal(409, "Conflict", detail, "several-sessions", "write one of them, with the id of its key", sessions=listed)

    async def _kept(self, request: Request) -> Response:
        pool = pool_named(request)
        return as_json(KeptSessions(pool=pool, sessions=[one for (of, _), one in self._kept_sessions.items() if of == pool]))

    async def _keep(self, request: Request) -> Response:
        pool, asked = pool_named(request), msgspec.json.decode(await request.body(), type=KeepSessionRequest)
        if not 1 <= asked.minutes <= 60:
            raise Refusal(
                422, "Cannot be used", f"minutes: {asked.minutes} cannot be used; write 1 to 60", "invalid-input", field="minutes"
            )
        kept = KeptSession(session=asked.session, until=self._clock() + timedelta(minutes=asked.minutes), by="operator-person")
        self._kept_sessions[pool, asked.session] = kept
        return as_json(kept, 201)

    async def _let_go(self, request: Request) -> Response:
        self._kept_sessions.pop((pool_named(request), request.path_params["session"]), None)
        return Response(status_code=204)

    def _moves(self, request: Request, moves: Sequence[Any]) -> list[Any]:
        names = ("pool", "source", "target", "trigger", "outcome", "session")
        paid_off = request.query_params.get("paid_off")
        found = [move for move in moves if paid_off is None or move.paid_off is (paid_off == "true")]
        return self._in_range(request, _filtered(request, found, names))

    async def _matrix(self, request: Request) -> Response:
        return _flows(self._moves(request, self._world.migrations()))

    async def _reroute_matrix(self, request: Request) -> Response:
        return _flows(self._moves(request, self._world.reroutes()))

    def _decisions(self, request: Request) -> list[Any]:
        names = ("pool", "session", "reason", "kept", "outcome", "priority_class", "trace", "request")
        found = self._in_range(request, _filtered(request, self._world.decisions(), names))
        wanted = request.query_params.get("instance")
        return [one for one in found if wanted in (None, one.chosen)]

    async def _reasons(self, request: Request) -> Response:
        pool, newest = pool_named(request), int(request.query_params.get("newest", 100))
        counted = Counter(one.reason for one in [one for one in self._world.decisions() if one.pool == pool][:newest])
        return as_json(DecisionReasons(pool=pool, reasons=[ReasonCount(reason=one, decisions=n) for one, n in counted.most_common()]))

    def _scaling(self, request: Request) -> list[Any]:
        names = ("pool", "role", "controller", "verdict")
        return self._in_range(request, _filtered(request, self._world.scaling_decisions(), names))

    def _rejections(self, request: Request) -> RejectionReport:
        chosen = parse_range(request.query_params.get("from"), request.query_params.get("to"), self._clock())
        groups = _filtered(request, self._world.rejections(chosen.start, chosen.end), ("pool", "priority_class"))
        return RejectionReport(groups=groups, total=sum(group.count for group in groups), served=51_200)

    async def _report(self, request: Request) -> Response:
        return as_json(self._rejections(request))

    async def _tasks(self, request: Request) -> Response:
        asked = request.query_params.get("pool")
        return as_json(trees.tasks([asked] if asked else self._world.pools_known, self._clock()))

    async def _tree(self, request: Request) -> Response:
        return as_json(trees.tree(pool_named(request), self._named(request), self._clock()))

    async def _think_times(self, request: Request) -> Response:
        return as_json(trees.think_times(pool_named(request), self._clock()))

    async def _cost(self, request: Request) -> Response:
        chosen = parse_range(request.query_params.get("from"), request.query_params.get("to"), self._clock())
        return as_json(costs.report(CostGroup(request.query_params.get("by", "pool")), chosen.start, chosen.end))

    def _audit(self, request: Request) -> list[Any]:
        pool = request.query_params.get("pool")
        found = [one for one in self._world.audit() if pool is None or f"{one.object}/".startswith(f"{pool}/")]
        return self._in_range(request, _filtered(request, found, ("actor", "action", "object", "kind")))

    async def _verification(self, request: Request) -> Response:
        return as_json(AuditVerification(intact=True, entries=len(self._world.audit()), first_broken=None))

    async def _facets(self, request: Request) -> Response:
        entries = self._audit(request)
        counted = {
            name: [AuditFacet(value=value, entries=n) for value, n in Counter(getattr(one, name) for one in entries).most_common()]
            for name in ("action", "actor", "result")
        }
        now = self._clock()
        found = AuditFacets(
            start=now, end=now, entries=len(entries), actions=counted["action"], actors=counted["actor"], results=counted["result"]
        )
        return as_json(found)

    async def _export(self, request: Request) -> Response:
        del request
        return Response(b'{"format":"fairlead-audit/1"}\n', media_type="application/jsonl")

    def _in_range(self, request: Request, items: Sequence[Any]) -> list[Any]:
        if "from" not in request.query_params:
            return list(items)
        chosen = parse_range(request.query_params["from"], request.query_params.get("to"), self._clock())
        return [item for item in items if chosen.start <= item.at <= chosen.end + timedelta(seconds=2)]


def _filtered(request: Request, items: Sequence[Any], names: Sequence[str]) -> list[Any]:
    wanted = {name: request.query_params[name] for name in names if request.query_params.get(name)}
    outcomes = RequestOutcome if "kept" in names else MoveOutcome
    for name, words in {**FILTER_WORDS, "outcome": outcomes}.items():
        if name in wanted and wanted[name] not in set(words):
            known = ", ".join(repr(word.value) for word in words)
            raise Refusal(422, "Cannot be used", f"{name}: write one of {known}", "invalid-input", known, name, wanted[name])
    return [item for item in items if all(str(getattr(item, name)) == value for name, value in wanted.items())]


def _flows(found: Sequence[Move]) -> Response:
    flows: dict[tuple[str, str], int] = {}
    triggers: dict[BindingReason, int] = {}
    buckets: dict[datetime, dict[BindingReason, int]] = {}
    for move in found:
        flows[move.source, move.target] = flows.get((move.source, move.target), 0) + 1
        triggers[move.trigger] = triggers.get(move.trigger, 0) + 1
        at = datetime.fromtimestamp(move.at.timestamp() // 60 * 60, tz=UTC)
        bucket = buckets.setdefault(at, {})
        bucket[move.trigger] = bucket.get(move.trigger, 0) + 1
    return as_json(
        MigrationMatrix(
            flows=[MigrationFlow(source=source, target=target, count=count) for (source, target), count in sorted(flows.items())],
            by_trigger=triggers,
            timeline=[TimelineBucket(at=at, counts=counts) for at, counts in sorted(buckets.items())],
            total=len(found),
            effect=_effect(found),
        )
    )


def _effect(found: Sequence[Move]) -> MovesEffect:
    known = [(one.predicted_source_ttft_seconds, one.actual_ttft_seconds) for one in found]
    won = [stay - actual for stay, actual in known if stay is not None and actual is not None]
    paid_off = [one.paid_off for one in found]
    return MovesEffect(
        paid_off=paid_off.count(True),
        not_paid_off=paid_off.count(False),
        unknown=paid_off.count(None),
        compared=len(won),
        seconds_won=sum(won),
        tokens_moved=sum(one.tokens_moved for one in found),
        tokens_recomputed=sum(one.tokens_recomputed for one in found),
    )
