"""Rights by namespace: a person with a role in one namespace does not learn of others.

Sessions, limits and modes of logging in are tested too.
"""

import asyncio
import itertools
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from fairlead.pool_states import PoolEvent
from fairlead.reports.decisions import DecisionReason, DecisionRecord, Weighing
from fairlead.tables import PoolKey
from fairlead_api.access.logins import FAILED_LOGINS
from fairlead_client.client import ControlApi
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole, LoginLinkRequest, LoginMode, TokenRequest
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.plans import ApplyRequest
from fairlead_testing.fakes.cluster_gateway import FakeClusterGateway
from fairlead_testing.running.api import SECRETS, ApiInstance, a_binding, a_load, a_report, a_state, an_instance, running_api
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport
from fairlead_testing.waiting import PATIENCE_SECONDS

MINE, THEIRS = PoolKey(namespace="team-a", name="chat"), PoolKey(namespace="secret-ns", name="hidden")
PEOPLE = ("viewer", "operator", "admin")


async def two_pools(api: ApiInstance) -> None:
    """Create a pool in each of two namespaces, with sessions, events and audit entries."""
    for number, pool in enumerate((MINE, THEIRS)):
        await api.pool_operator.put_pool_state(pool, a_state(an_instance(f"i-{pool.name}"), uid=f"uid-{pool.name}"))
        binding = replace(a_binding(f"s-{pool.name}", f"i-{pool.name}"), pool=pool)
        load = replace(a_load(f"i-{pool.name}", int(binding.at)), pool=pool)
        await api.router.post_report(a_report(f"r{number}", bindings=(binding,), loads=(load,)))
        event = PoolEvent(reason="InstanceCreated", message=f"made in {pool}", at=binding.at, instance=f"i-{pool.name}")
        await api.pool_operator.post_pool_events(pool, [event])


async def in_namespace(api: ApiInstance, role: str, namespace: str = MINE.namespace) -> ControlApi:
    """Return a client whose token has a role in one namespace only."""
    made = await api.admin.create_token(
        TokenRequest(name=f"{role} of {namespace}", role=AccessRole.NONE, namespaces={namespace: AccessRole(role)})
    )
    assert made.secret is not None
    return api.base.with_token(made.secret)


async def test_no_answer_tells_of_a_namespace_that_is_not_the_callers(api: ApiInstance) -> None:
    await two_pools(api)
    mine = await in_namespace(api, "admin")
    async with httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(api.app)) as http:
        document: dict[str, Any] = (await http.get("/openapi.json", headers={"authorization": f"Bearer {SECRETS['viewer']}"})).json()
        reads = [path for path, item in document["paths"].items() if "get" in item and path.startswith("/v1/") and path != "/v1/live"]
        told, seen_own, leaked = 0, 0, []
        for path, pool in itertools.product(reads, (MINE, THEIRS)):
            url = path.replace("{namespace}", pool.namespace).replace("{name}", pool.name).replace("{pool}", pool.name)
            for name in ("session", "instance"):
                url = url.replace(f"{{{name}:path}}", f"{name[0]}-{pool.name}").replace(f"{{{name}}}", f"{name[0]}-{pool.name}")
            for entry in ("1", "2", "3", "4") if "{entry_id}" in url else ("none",):
                asked = url.replace("{entry_id}", entry)
                for word in ("plan_id", "migration_id", "reroute_id", "decision_id", "key_id", "simulation_id"):
                    asked = asked.replace(f"{{{word}}}", "x").replace(f"{{{word}:path}}", "x")
                answered = await http.get(asked, headers={"authorization": f"Bearer {mine._token}"})  # the secret was shown once
                told += answered.status_code == 200
                seen_own += "i-chat" in answered.text
                if (answered.status_code == 200 or "{" not in path) and ("hidden" in answered.text or "secret-ns" in answered.text):
                    leaked.append((asked, answered.text[:200]))
                if pool is THEIRS and "{namespace}" in path:
                    assert answered.status_code == 403, (asked, answered.status_code)
        assert leaked == []
        assert told > 20
        assert seen_own > 5


async def test_a_pool_named_in_a_filter_must_be_in_a_namespace_of_the_caller(api: ApiInstance) -> None:
    await two_pools(api)
    mine = await in_namespace(api, "viewer")
    assert [one.session for one in (await mine.sessions({"pool": str(MINE)})).items] == ["s-chat"]
    assert [one.session for one in (await mine.sessions()).items] == ["s-chat"]
    for filters in ({"pool": str(THEIRS)}, {"pool": f"{THEIRS.namespace}/nope"}):
        with pytest.raises(ApiProblem) as caught:
            await mine.sessions(filters)
        assert caught.value.problem.status == 403
    assert len((await api.viewer.sessions()).items) == 2


async def test_a_busy_namespace_beside_the_callers_hides_nothing_of_it_from_live_events(api: ApiInstance) -> None:
    await two_pools(api)
    began = api.clock().timestamp()
    for pool, count in ((MINE, 1), (THEIRS, 40)):  # theirs are newer, and more than one event tells of
        made = DecisionRecord(
            id="",
            pool=pool,
            request="r",
            session=None,
            at=began,
            policy="dualmap",
            table_version=1,
            chosen=f"i-{pool.name}",
            runner_up=None,
            reason=DecisionReason.BEST_SCORE,
            prompt_tokens=1,
            weighing=Weighing(rule="r", candidates=(), considered=1),
        )
        decisions = tuple(replace(made, id=f"{pool.name}-{number}") for number in range(count))
        await api.router.post_report(a_report(f"busy {pool.name}", decisions=decisions))
    mine = await in_namespace(api, "viewer")
    async with asyncio.timeout(PATIENCE_SECONDS):
        event = await anext(mine.live(("decisions",), last_event_id=str(int(began * 1000))))
    assert [item["id"] for item in json.loads(event.data)] == ["chat-0"]


async def test_the_fleet_of_somebody_with_one_namespace_is_that_namespace(api: ApiInstance) -> None:
    await two_pools(api)
    api.clock.skip(20)
    await api.app.state.upkeep.roll_up(api.clock())
    told = []
    for one in (api.viewer, await in_namespace(api, "viewer")):
        trends, (line,) = await one.trends(), (await one.series(["running"])).lines
        pools = {each.pool for each in (await one.annotations()).items}
        told.append(([each.pool for each in trends.pools], trends.fleet.instance_hours, max(filter(None, line.values)), pools))
    (everywhere, hours, running, _), (mine, my_hours, my_running, my_pools) = told
    assert (everywhere, mine, my_pools) == ([str(THEIRS), str(MINE)], [str(MINE)], {str(MINE)})
    assert my_hours == pytest.approx(hours / 2, rel=0.01), "both were asked within a minute"
    assert my_running == running / 2


@pytest.mark.parametrize("held", [*PEOPLE, "none"])
async def test_every_write_needs_its_role_in_the_namespace_of_the_pool(database_url: str, held: str) -> None:
    """The table of roles and writes: in the own namespace by the role, elsewhere never."""
    cluster = FakeClusterGateway()
    cluster.add(MINE, 4)
    cluster.add(THEIRS, 4)
    async with running_api(database_url, overrides={"cluster": cluster}) as api:
        await two_pools(api)
        theirs = await api.admin.create_plan(THEIRS, PlanRequest(kind=PlanKind.SCALE, replicas=5))
        client = await in_namespace(api, held) if held != "none" else await in_namespace(api, "admin", "elsewhere")
        for kind in PlanKind:
            allowed = held != "none" and AccessRole(held).reaches(kind.facts.role)
            asked = PlanRequest(kind=kind, replicas=5 if kind is PlanKind.SCALE else None)
            assert (await _status(client.create_plan(MINE, asked)) == 403) != allowed, (kind, held)
            assert await _status(client.create_plan(THEIRS, asked)) == 403
        assert await _status(client.apply_plan(theirs.id, ApplyRequest())) in {403, 404}
        assert await _status(client.undo_plan(theirs.id)) in {403, 404}
        assert await _status(client.plan(theirs.id)) == 404
        mine = await api.admin.create_plan(MINE, PlanRequest(kind=PlanKind.SCALE, replicas=6))
        expected = {"none": {403, 404}, "viewer": {403}}.get(held, {200})
        assert await _status(client.apply_plan(mine.id, ApplyRequest())) in expected
        admin_here = held == "admin"
        for namespace, right in ((MINE.namespace, admin_here), (THEIRS.namespace, False)):
            rights = {namespace: AccessRole.VIEWER}
            asked_token = TokenRequest(name="x", role=AccessRole.NONE, namespaces=rights)
            link = LoginLinkRequest(role=AccessRole.NONE, namespaces=rights)
            assert (await _status(client.create_token(asked_token)) == 200) == right
            assert (await _status(client.create_login_link(link)) == 200) == right
        for role in PEOPLE:
            assert await _status(client.create_token(TokenRequest(name="x", role=AccessRole(role)))) == 403
        assert await _status(client.create_token(TokenRequest(name="x", role=AccessRole.SYSTEM_ROUTER))) == 403
        assert await _status(client.gateway_keys()) == 403
        assert await _status(client.audit_verification()) == 403


async def test_tokens_of_others_are_neither_shown_nor_revoked(api: ApiInstance) -> None:
    wide = await api.admin.create_token(TokenRequest(name="wide", role=AccessRole.VIEWER))
    rights = {"team-a": AccessRole.VIEWER, "team-b": AccessRole.VIEWER}
    both = await api.admin.create_token(TokenRequest(name="both", role=AccessRole.NONE, namespaces=rights))
    mine = await in_namespace(api, "admin")
    own = await mine.create_token(TokenRequest(name="own", role=AccessRole.NONE, namespaces={"team-a": AccessRole.VIEWER}))
    assert [(one.name, one.namespaces) for one in (await mine.tokens()).items] == [
        ("own", {"team-a": "viewer"}),
        ("admin of team-a", {"team-a": "admin"}),
    ]
    for token in (wide, both):
        assert await _status(mine.revoke_token(token.id)) == 404
    await mine.revoke_token(own.id)
    assert len((await api.admin.tokens()).items) == 4


@pytest.mark.parametrize(
    ("role", "namespaces", "field"),
    [
        ("none", {}, "role"),
        ("viewer", {"Team A": "viewer"}, "namespaces"),
        ("viewer", {"team-a": "none"}, "namespaces.team-a"),
        ("viewer", {"team-a": "system-router"}, "namespaces.team-a"),
        ("system-router", {"team-a": "viewer"}, "namespaces"),
    ],
)
async def test_rights_that_mean_nothing_are_refused_with_a_remedy(
    api: ApiInstance, role: str, namespaces: dict[str, str], field: str
) -> None:
    rights = {name: AccessRole(one) for name, one in namespaces.items()}
    with pytest.raises(ApiProblem) as caught:
        await api.admin.create_token(TokenRequest(name="x", role=AccessRole(role), namespaces=rights))
    assert (caught.value.problem.status, caught.value.problem.field) == (422, field)


async def test_a_login_link_of_one_namespace_makes_a_session_of_that_namespace(api: ApiInstance) -> None:
    await two_pools(api)
    rights = {"team-a": AccessRole.OPERATOR}
    link = await api.admin.create_login_link(LoginLinkRequest(role=AccessRole.NONE, subject="ada", namespaces=rights))
    ada = api.base.with_token((await api.base.login(link.token)).token)
    who = await ada.whoami()
    assert (who.role, who.namespaces) == ("none", rights)
    assert [pool.name for pool in (await ada.pools()).items] == ["chat"]
    assert await _status(ada.pool(THEIRS)) == 403


async def test_web_sessions_are_listed_and_end_when_they_are_revoked(api: ApiInstance) -> None:
    async def session(subject: str, role: AccessRole = AccessRole.VIEWER) -> ControlApi:
        link = await api.admin.create_login_link(LoginLinkRequest(role=role, subject=subject))
        return api.base.with_token((await api.base.login(link.token)).token)

    ada, other, eve = await session("ada"), await session("ada"), await session("eve")
    mine = (await ada.web_sessions()).items
    assert [(one.subject, one.current) for one in mine] == [("ada", False), ("ada", True)]
    assert {one.subject for one in (await api.admin.web_sessions()).items} == {"ada", "eve"}
    assert await _status(eve.revoke_web_session(mine[0].id)) == 404
    await ada.revoke_web_session(mine[0].id)
    assert (await _status(other.whoami()), await _status(ada.whoami())) == (401, 200)
    await api.admin.revoke_web_session(mine[1].id)
    assert await _status(ada.whoami()) == 401
    assert [entry.actor for entry in (await api.admin.audit({"action": "session.revoked"})).items] == ["test-admin", "ada"]


async def test_who_is_let_in_under_anothers_name_sees_and_ends_nothing_of_theirs(api: ApiInstance) -> None:
    """Admins of one namespace choose the names of people whom they admit, and of their tokens."""

    async def let_in(maker: ControlApi, role: AccessRole, namespaces: dict[str, AccessRole]) -> ControlApi:
        link = await maker.create_login_link(LoginLinkRequest(role=role, subject="ada", namespaces=namespaces))
        return api.base.with_token((await api.base.login(link.token)).token)

    ada = await let_in(api.admin, AccessRole.VIEWER, {})
    (own,) = (await ada.web_sessions()).items
    rights = {MINE.namespace: AccessRole.ADMIN}
    made = await api.admin.create_token(TokenRequest(name="test-admin", role=AccessRole.NONE, namespaces=rights))
    assert made.secret is not None
    mallory = api.base.with_token(made.secret)
    for _ in range(3):  # by a token of the admin's name, and by sessions of that
        mallory = await let_in(mallory, AccessRole.NONE, rights)
        (seen,) = (await mallory.web_sessions()).items
        assert seen.current
        assert await _status(mallory.revoke_web_session(own.id)) == 404
    assert await _status(ada.whoami()) == 200
    sources = [entry.source for entry in (await api.admin.audit({"action": "login"})).items]
    assert sources[2:] == [f"login-link of test-admin (token:{made.id})", "login-link of test-admin (bootstrap)"]
    assert [source[:27] for source in sources[:2]] == ["login-link of ada (login-li"] * 2
    assert len(sources[0]) == len(sources[1]), "it does not grow with each"


async def test_failed_logins_of_one_address_must_wait_and_good_ones_never(api: ApiInstance, caplog: pytest.LogCaptureFixture) -> None:
    link = await api.admin.create_login_link(LoginLinkRequest(role=AccessRole.VIEWER))
    token = await api.admin.create_token(TokenRequest(name="ada", role=AccessRole.VIEWER))
    assert token.secret is not None
    api.clock.stop()
    for _ in range(FAILED_LOGINS):
        assert await _status(api.base.login("flt_guess")) == 401
    with pytest.raises(ApiProblem) as caught:
        await api.base.login("flt_guess")
    assert "FORWARDED_ALLOW_IPS" in "".join(str(record.__dict__) for record in caplog.records)
    assert (caught.value.problem.status, caught.value.problem.type, caught.value.retry_after_seconds) == (429, "too-many-logins", 10)
    for secret in (link.token, token.secret):
        assert (await api.base.login(secret)).identity.role == "viewer", "though others failed from the same address"
    assert await _status(api.base.login(link.token)) == 429, "it is used up"
    api.clock.skip(10)
    assert await _status(api.base.login("flt_guess")) == 401


async def test_too_many_requests_of_one_credential_are_answered_429_and_processes_never(database_url: str) -> None:
    async with running_api(database_url, requests_per_second=1) as api:
        api.clock.stop()
        statuses = [await _status(api.viewer.whoami()) for _ in range(15)]
        assert statuses[:10] == [200] * 10
        assert statuses[-1] == 429
        assert await _status(api.admin.whoami()) == 200
        for number in range(15):
            await api.router.post_report(a_report(f"r{number}"))


async def test_the_ways_to_log_in_are_told_to_everybody(api: ApiInstance, database_url: str) -> None:
    assert (await api.base.login_modes()).modes == (LoginMode.LINK, LoginMode.TOKEN)
    async with running_api(database_url, auth_mode="none") as open_api:
        assert (await local(open_api).login_modes()).modes == (LoginMode.OPEN,)
        session = await local(open_api).login("")
        assert (await local(open_api).with_token(session.token).whoami()).role == "admin"


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:8080"},
        {"host": "127.0.0.1.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
    ],
    ids=lambda headers: " ".join(headers.values()),
)
async def test_where_everybody_is_let_in_pages_of_other_sites_are_not(database_url: str, headers: dict[str, str]) -> None:
    async with running_api(database_url, auth_mode="none") as open_api:
        transport = StreamingAsgiTransport(open_api.app)
        async with httpx.AsyncClient(base_url="http://127.0.0.1:8080", transport=transport) as http:
            for method, path in (("GET", "/v1/pools"), ("POST", "/v1/plans/p/undo"), ("POST", "/v1/login"), ("GET", "/v1/login-modes")):
                answer = await http.request(method, path, headers=headers, json={"token": ""} if path == "/v1/login" else None)
                assert (answer.status_code, "other sites" in answer.json()["detail"]) == (403, True)
            for own in ({}, {"sec-fetch-site": "same-origin"}, {"origin": "http://localhost:8080"}, {"host": "[::1]:8080"}):
                assert (await http.get("/v1/pools", headers=own)).status_code == 200


def local(api: ApiInstance) -> ControlApi:
    """Return a client at loopback, where all callers are admitted."""
    return ControlApi("http://127.0.0.1:8080", None, StreamingAsgiTransport(api.app))


async def test_people_are_told_from_the_system_in_the_audit_log(api: ApiInstance) -> None:
    await two_pools(api)
    await api.pool_operator.put_pool_state(
        MINE, a_state(an_instance("i-chat"), uid="uid-chat", version=2, generation=2, changed_by="argocd-controller", spec=_spec(3))
    )
    await api.admin.create_token(TokenRequest(name="x", role=AccessRole.VIEWER))
    people = (await api.viewer.audit({"kind": "human"})).items
    system = (await api.viewer.audit({"kind": "system"})).items
    assert {(one.action, one.kind) for one in people} == {("token.created", "human"), ("pool.created", "human")}
    assert {(one.action, one.kind) for one in system} == {("operator.InstanceCreated", "system"), ("pool.spec-changed", "system")}
    assert len(people) + len(system) == len((await api.viewer.audit()).items)


def _spec(replicas: int) -> dict[str, Any]:
    return {"model": "tiny", "replicas": replicas, "engine": {"type": "simulated"}, "routing": {"policy": "dualmap"}}


async def _status(attempt: Any) -> int:
    try:
        await attempt
    except ApiProblem as error:
        return error.problem.status
    return 200
