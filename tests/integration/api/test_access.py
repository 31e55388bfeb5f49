"""Every URL of the API's document is called by every role: access, tokens, login links, sessions and audit entries."""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import httpx
import psycopg
import pytest

from fairlead.reports.batches import RouterGone
from fairlead_api import openapi
from fairlead_api.access.limits import BURST, REFILL_SECONDS
from fairlead_client.problems import ApiProblem, StreamLost
from fairlead_client.resources.access import AccessRole, LoginLinkRequest, TokenRequest
from fairlead_testing.running.api import BOOTSTRAP, CHAT, SECRETS, ApiInstance, a_report, a_state, an_instance, running_api
from fairlead_testing.running.postgres import plain
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport
from fairlead_testing.running.strict_system_api import NotTaken
from fairlead_testing.waiting import PATIENCE_SECONDS

OPEN = {"/healthz", "/readyz", "/v1/login", "/v1/login/oidc", "/v1/login-modes"}
IDS = (
    *("instance", "session", "migration_id", "decision_id", "plan_id", "token_id", "key_id", "entry_id", "simulation_id"),
    *("webhook_id", "notice_id", "view_id", "comment_id"),
)
EVERYWHERE, SOMEWHERE = "in all namespaces", "in any namespace"
_POOL = "/v1/pools/{namespace}/{name}"
WRITES: dict[tuple[str, str], tuple[str, str]] = {
    ("/v1/login", "post"): ("nobody", SOMEWHERE),
    ("/v1/login/oidc", "post"): ("nobody", SOMEWHERE),
    ("/v1/logout", "post"): ("none", SOMEWHERE),
    ("/v1/web-sessions/{session_id}", "delete"): ("none", SOMEWHERE),
    ("/v1/login-links", "post"): ("admin", SOMEWHERE),
    ("/v1/tokens", "post"): ("admin", SOMEWHERE),
    ("/v1/tokens/{token_id}", "delete"): ("admin", SOMEWHERE),
    ("/v1/gateway-keys", "post"): ("operator", EVERYWHERE),
    ("/v1/gateway-keys/{key_id}", "delete"): ("operator", EVERYWHERE),
    ("/v1/gateway-keys/{key_id}", "patch"): ("operator", EVERYWHERE),
    ("/v1/gateway-keys/{key_id}/rotate", "post"): ("operator", EVERYWHERE),
    ("/v1/webhooks", "post"): ("admin", EVERYWHERE),
    ("/v1/webhooks/{webhook_id}", "delete"): ("admin", EVERYWHERE),
    ("/v1/webhooks/{webhook_id}/test", "post"): ("admin", EVERYWHERE),
    ("/v1/audit-views", "post"): ("viewer", SOMEWHERE),
    ("/v1/audit-views/{view_id}", "patch"): ("viewer", SOMEWHERE),
    ("/v1/audit-views/{view_id}", "delete"): ("viewer", SOMEWHERE),
    (f"{_POOL}/comments", "post"): ("viewer", "default"),
    ("/v1/comments/{comment_id}", "delete"): ("viewer", SOMEWHERE),
    ("/v1/kubernetes/audit", "post"): ("system-audit", EVERYWHERE),
    (f"{_POOL}/plans", "post"): ("operator", "default"),
    (f"{_POOL}/engine", "put"): ("operator", "default"),
    (f"{_POOL}/engine", "delete"): ("operator", "default"),
    (f"{_POOL}/kept-sessions", "post"): ("operator", "default"),
    (f"{_POOL}/test-request", "post"): ("operator", "default"),
    (f"{_POOL}/kept-sessions/{{session}}", "delete"): ("operator", "default"),
    ("/v1/plans/{plan_id}/apply", "post"): ("operator", SOMEWHERE),
    ("/v1/plans/{plan_id}/undo", "post"): ("operator", SOMEWHERE),
    ("/v1/plans/{plan_id}/again", "post"): ("operator", SOMEWHERE),
    (f"{_POOL}/simulations", "post"): ("operator", "default"),
    (f"{_POOL}/simulations/{{simulation_id}}", "delete"): ("operator", "default"),
    (f"{_POOL}/simulations/{{simulation_id}}/plan", "post"): ("operator", "default"),
    ("/internal/v1/pools/{namespace}/{name}/state", "put"): ("system-operator", EVERYWHERE),
    ("/internal/v1/pools/{namespace}/{name}/events", "post"): ("system-operator", EVERYWHERE),
    ("/internal/v1/pools/{namespace}/{name}", "delete"): ("system-operator", EVERYWHERE),
    ("/internal/v1/reports", "post"): ("system-router", EVERYWHERE),
    ("/internal/v1/predictor-models", "post"): ("system-router", EVERYWHERE),
    ("/internal/v1/routers/gone", "post"): ("system-router", EVERYWHERE),
}
"""The role that each write needs, and its scope.

The object of a write may need more: a plan's kind, the rights of a token (test_rights.py).
"""
CLOSED = {
    *("/metrics", "/v1/gateway-keys", "/v1/gateway-keys/{key_id}/usage", "/v1/audit/verification", "/v1/audit/head"),
    "/v1/audit/export",
    *("/v1/webhooks", "/v1/notices", "/v1/notices/{notice_id}"),
}
"""Reads outside any namespace for which a role in some namespace is not enough."""
NAMESPACED = {
    "viewer of default": "default",
    "operator of default": "default",
    "admin of default": "default",
    "admin of elsewhere": "elsewhere",
}


def needed(path: str, method: str) -> tuple[str, str]:
    """Return the role, and the scope in which it is needed."""
    if method != "get":
        return WRITES[path, method]
    if path.startswith("/internal"):
        return ("system-operator" if path.endswith(("/held-pools", "/unheard-pools")) else "system-router"), EVERYWHERE
    table = path.removesuffix(".csv").removesuffix(".json")
    if table in {"/v1/whoami", "/v1/web-sessions"}:
        return "none", SOMEWHERE
    if table.endswith("/instances/{instance}/log"):
        return "operator", "default"
    return ("admin" if table == "/v1/tokens" else "viewer"), (
        "default" if "{namespace}" in path else EVERYWHERE if table in CLOSED else SOMEWHERE
    )


def admitted(path: str, method: str, who: str) -> bool:
    role, where = needed(path, method)
    held = AccessRole(who.partition(" ")[0])
    there = NAMESPACED.get(who) in {None, where} or where == SOMEWHERE
    return held.reaches(AccessRole(role)) and there


def test_every_write_of_the_document_is_in_the_table() -> None:
    paths = json.loads(openapi.document())["paths"]
    assert WRITES.keys() == {(path, method) for path, item in paths.items() for method in item if method != "get"}


@pytest.mark.timeout(1800)
async def test_every_url_admits_exactly_the_roles_it_should(api: ApiInstance) -> None:
    auditor = await api.admin.create_token(TokenRequest(name="kube-apiserver", role=AccessRole.SYSTEM_AUDIT))
    secrets: dict[str, str | None] = {"nobody": None, "unknown": "flt_unknown", **SECRETS, "system-audit": auditor.secret}
    for who, namespace in NAMESPACED.items():
        rights = {namespace: AccessRole(who.partition(" ")[0])}
        secrets[who] = (await api.admin.create_token(TokenRequest(name=who, role=AccessRole.NONE, namespaces=rights))).secret
    async with httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(api.app)) as http:
        paths = json.loads(openapi.document())["paths"]
        operations = [(path, method) for path, item in paths.items() for method in item]
        assert len(operations) > 45
        wrong = []
        for (path, method), (who, secret) in itertools.product(operations, secrets.items()):
            url = path.replace("{namespace}", "default").replace("{name}", "nope")
            for name in IDS:
                url = url.replace(f"{{{name}}}", "7")
            async with http.stream(method, url, headers={} if secret is None else {"authorization": f"Bearer {secret}"}) as response:
                status = response.status_code
            if path in OPEN:
                right = status not in {401, 403} or path == "/v1/login"
            elif who in {"nobody", "unknown"}:
                right = status == 401
            else:
                right = (status == 403) != admitted(path, method, who) and status != 401
            if not right:
                wrong.append((method, path, who, status))
        assert wrong == []


async def test_no_endpoint_reads_cookies(api: ApiInstance) -> None:
    async with httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(api.app)) as http:
        answered = await http.get("/v1/pools", headers={"cookie": f"sid={SECRETS['admin']}; authorization=Bearer {SECRETS['admin']}"})
        assert answered.status_code == 401
        assert answered.headers["content-type"] == "application/problem+json"


async def test_a_login_link_works_once(api: ApiInstance) -> None:
    link = await api.admin.create_login_link(LoginLinkRequest(role=AccessRole.OPERATOR, subject="ada"))
    session = await api.base.login(link.token)
    assert (session.identity.subject, session.identity.role) == ("ada", "operator")
    assert (await api.base.with_token(session.token).whoami()).subject == "ada"
    with pytest.raises(ApiProblem) as caught:
        await api.base.login(link.token)
    assert (caught.value.problem.status, caught.value.problem.type) == (401, "login-link-expired")


async def test_a_login_link_dies_after_its_minutes(api: ApiInstance) -> None:
    link = await api.admin.create_login_link(LoginLinkRequest(role=AccessRole.VIEWER, minutes=10))
    api.clock.skip(601)
    with pytest.raises(ApiProblem) as caught:
        await api.base.login(link.token)
    assert caught.value.problem.type == "login-link-expired"


async def test_a_session_ends_by_logout_idling_and_age(api: ApiInstance) -> None:
    async def fresh() -> str:
        return (await api.base.login((await api.admin.create_login_link(LoginLinkRequest(role=AccessRole.VIEWER))).token)).token

    left, idle = await fresh(), await fresh()
    await api.base.with_token(left).logout()
    api.clock.skip(8 * 3600 + 1)
    for token in (left, idle):
        with pytest.raises(ApiProblem) as caught:
            await api.base.with_token(token).whoami()
        assert caught.value.problem.status == 401
    busy = await fresh()
    for _ in range(4):
        api.clock.skip(7 * 3600)
        last = await _status(api, busy)
    assert last == 401


async def _status(api: ApiInstance, token: str) -> int:
    try:
        await api.base.with_token(token).whoami()
    except ApiProblem as error:
        return error.problem.status
    return 200


async def test_a_revoked_token_takes_its_web_sessions_with_it(api: ApiInstance) -> None:
    token = await api.admin.create_token(TokenRequest(name="grace", role=AccessRole.VIEWER, days=1))
    assert token.secret is not None
    session = await api.base.login(token.secret)
    assert await _status(api, session.token) == 200
    await api.admin.revoke_token(token.id)
    assert (await _status(api, session.token), await _status(api, token.secret)) == (401, 401)
    listed = (await api.admin.tokens()).items
    assert [(item.name, item.secret, item.revoked_at is not None) for item in listed] == [("grace", None, True)]


async def test_a_bootstrap_token_with_another_secret_takes_its_web_sessions_with_it(api: ApiInstance, database_url: str) -> None:
    session = await api.base.login(SECRETS["operator"])
    renewed = tuple(token._replace(secret=f"{token.secret}-anew") if token.role == "operator" else token for token in BOOTSTRAP)
    async with running_api(database_url) as other, running_api(database_url, bootstrap_tokens=renewed) as changed:
        assert await _status(other, session.token) == 200, "of another process with the same secret"
        assert await _status(changed, session.token) == 401
        again = await changed.base.login(f"{SECRETS['operator']}-anew")
        assert await _status(changed, again.token) == 200


async def test_a_token_revoked_while_somebody_logs_in_with_it_opens_no_session(api: ApiInstance, database_url: str) -> None:
    token = await api.admin.create_token(TokenRequest(name="grace", role=AccessRole.VIEWER))
    assert token.secret is not None
    await api.base.with_token(token.secret).whoami()  # its use is noted, so that the login need not write that
    with psycopg.connect(plain(database_url)) as revoking, psycopg.connect(plain(database_url), autocommit=True) as watching:
        revoking.execute("UPDATE api_tokens SET revoked_at = now()")
        login = asyncio.ensure_future(api.base.login(token.secret))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not login.done() and not watching.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone():
                await asyncio.sleep(0.01)
    with pytest.raises(ApiProblem) as caught:
        await login
    assert (caught.value.problem.status, caught.value.problem.type) == (401, "token-invalid")


async def test_no_secret_is_stored(api: ApiInstance, database_url: str) -> None:
    token = await api.admin.create_token(TokenRequest(name="grace", role=AccessRole.VIEWER))
    link = await api.admin.create_login_link(LoginLinkRequest(role=AccessRole.VIEWER))
    session = await api.base.login(link.token)
    with psycopg.connect(plain(database_url)) as connection:
        tables = [name for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        stored = "".join(str(connection.execute(f'SELECT * FROM "{name}"').fetchall()) for name in tables)
    for secret in (token.secret, link.token, session.token):
        assert secret is not None
        assert secret not in stored
        assert secret[4:] not in stored


async def test_a_router_speaks_for_itself_and_its_replicas_only(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    await api.router.post_report(a_report("r1", "router"))
    await api.router.post_report(a_report("r2", "router-7f9c"))
    for other in ("edge", "route", "routers", "operator"):
        for attempt in (api.router.post_report(a_report("r3", other)), api.router.post_router_gone(RouterGone(router=other, at=0.0))):
            with pytest.raises(NotTaken, match=rf": 403 .*{other}"):
                await attempt
        with pytest.raises(StreamLost, match="answered 403"):
            await anext(api.router.stream(other))


async def test_a_router_cannot_tell_a_pools_state_nor_the_operator_report(api: ApiInstance) -> None:
    for attempt in (
        api.router.put_pool_state(CHAT, a_state(an_instance("a"))),
        api.router.delete_pool(CHAT),
        api.pool_operator.post_report(a_report("r1", "operator")),
    ):
        with pytest.raises(NotTaken, match=": 403 "):
            await attempt
    for role in ("system-router", "system-operator"):
        for reading in (api.base.with_token(SECRETS[role]).pools(), api.base.with_token(SECRETS[role]).sessions({})):
            with pytest.raises(ApiProblem) as caught:
                await reading
            assert caught.value.problem.status == 403


async def test_refusals_in_a_loop_do_not_fill_the_audit_log(api: ApiInstance) -> None:
    async def refused(times: int) -> None:
        for number in range(times):
            with pytest.raises(ApiProblem):
                await api.viewer.revoke_token(f"t{number}")

    api.clock.stop()
    await refused(BURST + 30)
    assert (await api.admin.audit_verification()).entries == BURST
    api.clock.skip(REFILL_SECONDS)
    await refused(1)
    newest = (await api.admin.audit({})).items[0]
    assert (newest.action, newest.after) == ("access.denied", {"refusals_counted_before": 30})


async def test_system_tokens_cannot_log_in_and_roles_are_checked(api: ApiInstance) -> None:
    with pytest.raises(ApiProblem) as caught:
        await api.base.login(SECRETS["system-router"])
    assert caught.value.problem.status == 403
    root = replace(LoginLinkRequest(role=AccessRole.VIEWER), role=cast(AccessRole, "root"))
    for request in (root, LoginLinkRequest(role=AccessRole.VIEWER, minutes=60), LoginLinkRequest(role=AccessRole.SYSTEM_OPERATOR)):
        with pytest.raises(ApiProblem) as caught:
            await api.admin.create_login_link(request)
        assert caught.value.problem.status == 422
        assert caught.value.problem.field in {"role", "minutes"}


@pytest.mark.parametrize("path", ["/v1/tokens", "/v1/plans/x/apply", "/internal/v1/reports", "/v1/no-such-path"])
async def test_a_stranger_learns_nothing_and_their_body_is_not_read(api: ApiInstance, path: str) -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("the body was read")

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": [], "state": {}}
    await api.app(scope, receive, send)
    headers = dict(sent[0]["headers"])
    assert (sent[0]["status"], headers[b"www-authenticate"], headers[b"content-type"]) == (401, b"Bearer", b"application/problem+json")
    assert json.loads(sent[1]["body"])["type"] == "token-missing"


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ('{"token": "\\ud800"}', 422, "token"),
        ('{"\\ud800": 1}', 422, "?"),
        ('{"token": "x", "y": ' + "[" * 30_000 + "]" * 30_000 + "}", 400, None),
    ],
    ids=["half of a character", "half a character for a name", "deeply nested"],
)
async def test_a_body_that_cannot_be_written_down_is_refused_not_an_error(
    api: ApiInstance, body: str, status: int, field: str | None
) -> None:
    async with httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(api.app)) as http:
        headers = {"content-type": "application/json", "authorization": f"Bearer {SECRETS['system-router']}"}
        answered = await http.post("/v1/login", content=body, headers=headers)
        assert (answered.status_code, answered.json().get("field")) == (status, field)
        nested = "[" * 100_000 + "]" * 100_000
        assert (await http.post("/internal/v1/reports", content=nested, headers=headers)).status_code in {400, 422}


async def test_a_wrong_method_is_told_every_right_one(api: ApiInstance) -> None:
    async with httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(api.app)) as http:
        answered = await http.put("/v1/tokens", headers={"authorization": f"Bearer {SECRETS['admin']}"})
        assert (answered.status_code, answered.headers["allow"]) == (405, "GET, POST")


async def test_the_document_names_credentials_and_refusals(api: ApiInstance) -> None:
    async with httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(api.app)) as http:
        document = (await http.get("/openapi.json", headers={"authorization": f"Bearer {SECRETS['viewer']}"})).json()
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for path, item in document["paths"].items():
        for operation in item.values():
            assert operation["security"] == ([] if path in OPEN else [{"bearer": []}])
            told = operation["responses"].keys()
            strangers = {"/v1/login": {"401", "403"}, "/v1/login/oidc": {"401"} if "requestBody" in operation else set()}
            assert {"401", "403"} & told == (strangers.get(path, set()) if path in OPEN else {"401", "403"})
            assert {"400", "413", "422"} <= told or "requestBody" not in operation
            assert ("404" in told) or "{" not in path
            assert ("503" in told) == (path not in {"/healthz", "/v1/login-modes"})
    assert document["components"]["schemas"]["TokenRequest"]["additionalProperties"] is False
    assert "HTTPValidationError" not in json.dumps(document)


async def test_an_unknown_field_is_refused_not_ignored(api: ApiInstance) -> None:
    async with httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(api.app)) as http:
        headers = {"authorization": f"Bearer {SECRETS['admin']}"}
        answered = await http.post("/v1/tokens", json={"name": "x", "role": "viewer", "day": 3}, headers=headers)
        assert answered.status_code == 422
        assert answered.json()["field"] == "day"
        broken = await http.post("/v1/tokens", content=b"{", headers={**headers, "content-type": "application/json"})
        assert (broken.status_code, broken.json()["type"]) == (400, "malformed-json")


async def test_logins_denials_and_tokens_are_in_the_audit_log(api: ApiInstance) -> None:
    with pytest.raises(ApiProblem):
        await api.viewer.create_token(TokenRequest(name="x", role=AccessRole.ADMIN))
    token = await api.admin.create_token(TokenRequest(name="grace", role=AccessRole.VIEWER))
    await api.admin.revoke_token(token.id)
    with pytest.raises(ApiProblem):
        await api.base.login("flt_guess")
    found = [(entry.actor, entry.action, entry.result) for entry in (await api.admin.audit({})).items]
    assert found == [
        ("unknown", "login", "denied"),
        ("test-admin", "token.revoked", "ok"),
        ("test-admin", "token.created", "ok"),
        ("test-viewer", "access.denied", "denied"),
    ]


async def test_tampering_with_the_audit_log_shows(api: ApiInstance, database_url: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    for number in range(5):
        await api.admin.create_token(TokenRequest(name=f"t{number}", role=AccessRole.VIEWER))
    intact = await api.admin.audit_verification()
    assert (intact.intact, intact.entries, intact.first_broken) == (True, 6, None)
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        for statement in ("UPDATE audit_log SET actor = 'eve'", "DELETE FROM audit_log", "TRUNCATE audit_log"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
        connection.execute("ALTER TABLE audit_log DISABLE TRIGGER append_only")
        connection.execute("UPDATE audit_log SET actor = 'eve' WHERE id = 3")
    broken = await api.admin.audit_verification()
    assert (broken.intact, broken.first_broken) == (False, 3)


async def test_removing_an_audit_entry_shows(api: ApiInstance, database_url: str) -> None:
    for number in range(4):
        await api.admin.create_token(TokenRequest(name=f"t{number}", role=AccessRole.VIEWER))
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        connection.execute("ALTER TABLE audit_log DISABLE TRIGGER append_only")
        connection.execute("DELETE FROM audit_log WHERE id = 2")
    assert (await api.admin.audit_verification()).first_broken == 3


async def test_a_process_whose_clock_is_fast_dates_no_entry_of_the_audit_log_in_the_future(
    api: ApiInstance, start_api: Callable[[], Awaitable[ApiInstance]]
) -> None:
    other = await start_api()
    api.clock.skip(3600)
    began = datetime.now(UTC)
    for writer in (other, api, other):
        await writer.admin.create_token(TokenRequest(name="x", role=AccessRole.VIEWER))
    entries = (await other.viewer.audit({})).items
    ended = datetime.now(UTC)
    times = [entry.at for entry in reversed(entries)]
    assert [began, *times, ended] == sorted([began, *times, ended])
    assert (await other.viewer.audit_verification()).intact


async def test_entries_cut_from_the_end_of_the_audit_log_are_missed(api: ApiInstance, database_url: str) -> None:
    for number in range(6):
        await api.admin.create_token(TokenRequest(name=f"t{number}", role=AccessRole.VIEWER))
    kept = await api.viewer.audit_head()
    assert kept.id == 6
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        connection.execute("ALTER TABLE audit_log DISABLE TRIGGER append_only")
        connection.execute("DELETE FROM audit_log WHERE id > 4")
    cut = await api.viewer.audit_verification()
    assert (cut.intact, cut.first_broken, cut.missing, cut.entries) == (False, 5, 2, 4)
    await api.admin.create_token(TokenRequest(name="later", role=AccessRole.VIEWER))
    later = await api.viewer.audit_verification()
    assert (later.intact, later.first_broken, later.missing, later.entries) == (False, 7, 2, 5)

    with psycopg.connect(
        plain(database_url), autocommit=True
    ) as connection:  # who forges the heads too is found out by a head kept elsewhere
        connection.execute("DELETE FROM audit_log WHERE id > 4")
        connection.execute("UPDATE audit_heads SET (last_id, chain, at) = (SELECT id, chain, at FROM audit_log WHERE id = 4)")
    assert (await api.viewer.audit_verification()).intact
    forged = await api.viewer.audit_verification(kept)
    assert (forged.intact, forged.kept_head_holds) == (False, False)


async def test_a_kept_head_holds_while_the_log_grows(api: ApiInstance) -> None:
    await api.admin.create_token(TokenRequest(name="first", role=AccessRole.VIEWER))
    kept = await api.viewer.audit_head()
    for number in range(3):
        await api.admin.create_token(TokenRequest(name=f"t{number}", role=AccessRole.VIEWER))
    found = await api.viewer.audit_verification(kept)
    assert (found.intact, found.kept_head_holds, found.missing) == (True, True, 0)
    assert found.head is not None
    assert found.head.id == 4


async def test_the_audit_log_is_whole_while_it_is_written_and_verified_at_once(api: ApiInstance) -> None:
    async def write(name: str) -> None:
        for number in range(5):
            await api.admin.create_token(TokenRequest(name=f"{name}{number}", role=AccessRole.VIEWER))

    writers = [asyncio.create_task(write(name)) for name in "abc"]
    while not all(writer.done() for writer in writers):
        assert (await api.viewer.audit_verification()).intact
    await asyncio.gather(*writers)
    assert (await api.viewer.audit_verification()).entries == 15
