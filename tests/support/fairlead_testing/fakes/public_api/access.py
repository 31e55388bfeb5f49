"""Authentication and authorization: tokens, login links and sessions, and the role that an endpoint needs."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead_api.access.keys import changed_key
from fairlead_client.resources.access import (
    PEOPLE,
    AccessRole,
    Identity,
    LoginLink,
    LoginLinkRequest,
    LoginMode,
    LoginModes,
    LoginRequest,
    TokenItem,
    TokenRequest,
    WebSession,
    WebSessionItem,
)
from fairlead_client.resources.gateway_keys import (
    GatewayKey,
    GatewayKeyChange,
    GatewayKeyRequest,
    GatewayKeyRotation,
    GatewayKeyTotals,
    GatewayKeyUsage,
    GatewayKeyUsePoint,
)
from fairlead_testing.fakes.public_api.answers import Endpoint, Refusal, as_json, document_routes, list_routes
from fairlead_testing.fakes.public_data.loads import HOSTILE
from fairlead_testing.fakes.public_data.world import World
from fairlead_web.text.time_ranges import parse_range

USED = GatewayKeyTotals(
    requests=18_204, prompt_tokens=41_300_512, output_tokens=2_950_077, refused={"key-expired": 3, "rejected-key-requests": 120}
)
"""Requests and tokens of each used key in the last 24 hours."""
KEYS = (
    (HOSTILE, (), None, 50),
    ("search", ("default/chat",), 600, -1),
    ("migration-of-the-billing-service", ("default/chat",), 120_000, 50),
    ("nightly-batch", (), None, 50),
)
"""Name, pools, requests a minute and remaining days of each key.

The second key is revoked. The third has nearly used up its budget, the fourth has used up all of it.
"""


class Access:
    """Identities by session and by token, and the roles of unused login links."""

    def __init__(self, world: World, clock: Callable[[], datetime]) -> None:
        self._world = world
        self._clock = clock
        self.sessions: dict[str, Identity] = {}
        self.tokens = {f"{role}-token": Identity(subject=f"{role}-person", role=role, source="token", expires_at=None) for role in PEOPLE}
        self.tokens["hostile-token"] = Identity(subject=HOSTILE, role=AccessRole.VIEWER, source="token", expires_at=None)
        self.gateway_keys = [
            GatewayKey(
                id=f"k-{number}",
                name=name,
                prefix=f"flk_ab{number}d",
                pools=pools,
                models=(),
                requests_per_minute=requests,
                tokens_per_minute=2_000_000,
                created_at=clock() - timedelta(days=40),
                created_by="operator-person",
                expires_at=clock() + timedelta(days=days),
                revoked_at=clock() - timedelta(days=1) if number == 1 else None,
                last_used_at=clock() - timedelta(minutes=3) if number else None,
                last_day=USED if number else GatewayKeyTotals(),
                budget_day="250000.00" if number > 1 else None,
                budget_month="4000000.00" if number > 1 else None,
                budget_currency="EUR" if number > 1 else None,
                budget_soft_at=clock() - timedelta(hours=2) if number > 1 else None,
                budget_ends_at=clock() + timedelta(hours=9) if number == 3 else None,
            )
            for number, (name, pools, requests, days) in enumerate(KEYS)
        ]
        self.login_links = {"flt_once": AccessRole.OPERATOR}

    def routes(self) -> list[Route]:
        return [
            Route("/v1/login", self._login, methods=["POST"]),
            Route("/v1/login-modes", self._modes),
            *list_routes("/v1/web-sessions", self._list_sessions, self.guard),
            Route("/v1/web-sessions/{session}", self.guard(self._revoke_session), methods=["DELETE"]),
            Route("/v1/logout", self.guard(self._logout), methods=["POST"]),
            Route("/v1/whoami", self.guard(self._whoami)),
            Route("/v1/login-links", self.guard(self._login_link, AccessRole.ADMIN), methods=["POST"]),
            *list_routes("/v1/tokens", lambda _: self._world.tokens(), lambda endpoint: self.guard(endpoint, AccessRole.ADMIN)),
            Route("/v1/tokens", self.guard(self._create_token, AccessRole.ADMIN), methods=["POST"]),
            *list_routes("/v1/gateway-keys", lambda _: self.gateway_keys, self.guard),
            Route("/v1/gateway-keys", self.guard(self._create_key, AccessRole.OPERATOR), methods=["POST"]),
            *document_routes("/v1/gateway-keys/{key_id}/usage", self._key_usage, "points", self.guard),
            Route("/v1/gateway-keys/{key_id}", self.guard(self._change_key, AccessRole.OPERATOR), methods=["PATCH"]),
            Route("/v1/gateway-keys/{key_id}/rotate", self.guard(self._rotate_key, AccessRole.OPERATOR), methods=["POST"]),
            Route("/v1/gateway-keys/{key_id}", self.guard(self._revoke_key, AccessRole.OPERATOR), methods=["DELETE"]),
            Route("/v1/tokens/{token}", self.guard(self._revoke, AccessRole.ADMIN), methods=["DELETE"]),
        ]

    def guard(self, endpoint: Endpoint, role: AccessRole = AccessRole.VIEWER) -> Endpoint:
        """Return an endpoint that calls `endpoint` if the caller's role reaches `role`, and answers 403 otherwise."""

        async def handle(request: Request) -> Response:
            identity = self.identity(request)
            if not identity.role.reaches(role):
                raise Refusal(403, "Role too low", f"This needs the role {role}; {identity.subject} is {identity.role}.", "forbidden")
            return await endpoint(request)

        return handle

    def identity(self, request: Request) -> Identity:
        secret = request.headers.get("x-fairlead-token") or request.headers.get("authorization", "").removeprefix("Bearer ")
        found = self.sessions.get(secret) or self.tokens.get(secret)
        if found is None:
            raise Refusal(401, "Sign in first", "The session has ended or the token is unknown.", "unauthenticated")
        return found

    async def _login(self, request: Request) -> Response:
        token = msgspec.json.decode(await request.body(), type=LoginRequest).token
        if token in self.login_links:
            role = self.login_links.pop(token)
            identity = Identity(
                subject="sandbox", role=role, source="login-link of admin-person (bootstrap)", expires_at=self._clock() + timedelta(hours=8)
            )
        elif token in self.tokens:
            identity = replace(self.tokens[token], source="web", expires_at=self._clock() + timedelta(hours=8))
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
        return as_json(WebSession(token=session, identity=identity, expires_at=identity.expires_at), 201)

    async def _modes(self, request: Request) -> Response:
        return as_json(LoginModes(modes=(LoginMode.LINK, LoginMode.TOKEN)))

    def _list_sessions(self, request: Request) -> list[WebSessionItem]:
        who, now = self.identity(request), self._clock()
        return [
            WebSessionItem(
                id=f"s-{number}",
                subject=one.subject,
                role=one.role,
                namespaces=one.namespaces,
                source=one.source,
                created_at=now - timedelta(hours=1),
                last_used_at=now - timedelta(seconds=5),
                expires_at=one.expires_at or now,
                address="192.0.2.7",
                current=one is who,
            )
            for number, one in enumerate(self.sessions.values())
            if who.role is AccessRole.ADMIN or one.subject == who.subject
        ]

    async def _revoke_session(self, request: Request) -> Response:
        wanted = request.path_params["session"]
        secret = next((one for number, one in enumerate(self.sessions) if f"s-{number}" == wanted), None)
        if secret is None:
            raise Refusal(404, "No such session", f"There is no session {wanted}.")
        del self.sessions[secret]
        return Response(status_code=204)

    async def _logout(self, request: Request) -> Response:
        self.sessions.pop(request.headers["authorization"].removeprefix("Bearer "), None)
        return Response(status_code=204)

    async def _whoami(self, request: Request) -> Response:
        return as_json(self.identity(request))

    async def _login_link(self, request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=LoginLinkRequest)
        self.login_links["flt_new"] = asked.role
        return as_json(
            LoginLink(token="flt_new", path="/login?token=flt_new", expires_at=self._clock() + timedelta(minutes=asked.minutes)), 201
        )

    async def _create_token(self, request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=TokenRequest)
        now = self._clock()
        made = TokenItem(
            id="t-3",
            name=asked.name,
            role=asked.role,
            namespaces=asked.namespaces,
            created_at=now,
            created_by="admin-person",
            expires_at=now + timedelta(days=asked.days),
            last_used_at=None,
            revoked_at=None,
            secret="flt_shown_once",
        )
        return as_json(made, 201)

    async def _create_key(self, request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=GatewayKeyRequest)
        if not asked.name:
            raise Refusal(422, "Invalid input", "name: '' cannot be used; write a name", "invalid-input")
        now = self._clock()
        made = GatewayKey(
            id=f"k-{len(self.gateway_keys)}",
            name=asked.name,
            prefix="flk_show",
            pools=asked.pools,
            models=asked.models,
            requests_per_minute=asked.requests_per_minute,
            tokens_per_minute=asked.tokens_per_minute,
            priority_class=asked.priority_class,
            explain=asked.explain,
            budget_day=asked.budget_day,
            budget_month=asked.budget_month,
            budget_currency=asked.budget_currency,
            budget_soft_percent=asked.budget_soft_percent,
            created_at=now,
            created_by=self.identity(request).subject,
            expires_at=None if asked.days is None else now + timedelta(days=asked.days),
            revoked_at=None,
        )
        self.gateway_keys.insert(0, made)
        return as_json(replace(made, secret="flk_shown-once"), 201)

    async def _change_key(self, request: Request) -> Response:
        key_id, change = request.path_params["key_id"], msgspec.json.decode(await request.body(), type=GatewayKeyChange)
        place = next((place for place, key in enumerate(self.gateway_keys) if key.id == key_id), None)
        if place is None:
            raise Refusal(404, "No such key", f"There is no gateway key {key_id}.")
        if self.gateway_keys[place].revoked_at is not None:
            raise Refusal(409, "Conflict", f"the gateway key {key_id} is revoked", "gateway-key-revoked")
        self.gateway_keys[place] = changed_key(self.gateway_keys[place], change, self._clock())
        return as_json(self.gateway_keys[place])

    async def _rotate_key(self, request: Request) -> Response:
        key_id, rotation = request.path_params["key_id"], msgspec.json.decode(await request.body(), type=GatewayKeyRotation)
        place = next((place for place, key in enumerate(self.gateway_keys) if key.id == key_id), None)
        if place is None:
            raise Refusal(404, "No such key", f"There is no gateway key {key_id}.")
        until = self._clock() + timedelta(hours=rotation.hours) if rotation.hours else None
        self.gateway_keys[place] = replace(self.gateway_keys[place], prefix="flk_new0", former_until=until)
        return as_json(replace(self.gateway_keys[place], secret="flk_shown-once"))

    async def _key_usage(self, request: Request) -> Response:
        key_id, now = request.path_params["key_id"], self._clock()
        if all(key.id != key_id for key in self.gateway_keys):
            raise Refusal(404, "No such key", f"There is no gateway key {key_id}.")
        (total,) = (key.last_day for key in self.gateway_keys if key.id == key_id)
        query = request.query_params
        chosen = parse_range(query.get("from", "now-24h"), query.get("to"), now)
        whole = GatewayKeyUsePoint(
            at=now - timedelta(hours=2),
            requests=total.requests,
            prompt_tokens=total.prompt_tokens,
            output_tokens=total.output_tokens,
            refused=total.refused,
        )
        points = [whole] if total.requests and chosen.start <= whole.at < chosen.end else []
        found = total if points else GatewayKeyTotals()
        return as_json(GatewayKeyUsage(key=key_id, start=chosen.start, end=chosen.end, step_seconds=3600, total=found, points=points))

    async def _revoke_key(self, request: Request) -> Response:
        key_id = request.path_params["key_id"]
        if all(key.id != key_id for key in self.gateway_keys):
            raise Refusal(404, "No such key", f"There is no gateway key {key_id}.")
        self.gateway_keys = [replace(key, revoked_at=self._clock()) if key.id == key_id else key for key in self.gateway_keys]
        return Response(status_code=204)

    async def _revoke(self, request: Request) -> Response:
        if request.path_params["token"] not in {token.id for token in self._world.tokens()}:
            raise Refusal(404, "No such token", f"There is no token {request.path_params['token']}.")
        return Response(status_code=204)
