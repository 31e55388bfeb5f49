"""A session of a gateway key is found by the name that its client sends, wherever a person names a session."""

from dataclasses import replace
from typing import Any

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from fairlead.instances import InstanceState
from fairlead.reports.bindings import BindingReason
from fairlead.reports.decisions import DecisionReason, DecisionRecord, Weighing
from fairlead.reports.moves import MigrationRecord, MoveOutcome
from fairlead.routing.contracts.weighing import NOT_WEIGHED
from fairlead.session_identities import session_identity
from fairlead.tables import PoolKey
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole, TokenRequest
from fairlead_client.resources.gateway_keys import GatewayKeyRequest
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.problems import SessionOfKey
from fairlead_client.resources.sessions import KeepSessionRequest
from fairlead_testing.running.api import CHAT, ApiInstance, a_binding, a_report, a_state, an_instance
from fairlead_testing.running.postgres import plain

OTHER = PoolKey(namespace="elsewhere", name="chat")
GONE = "8897a6b5c4d3e2f1"
"""The id of a key that no longer exists."""


def a_decision(pool: PoolKey, session: str, at: float) -> DecisionRecord:
    return DecisionRecord(
        id=f"of {session} in {pool}", pool=pool, request="", session=session, at=at, policy="fairlead", table_version=1, chosen="a",
        runner_up=None, reason=DecisionReason.SESSION_COLD, prompt_tokens=10,
        weighing=Weighing(rule=NOT_WEIGHED, candidates=(), considered=0),
    )  # fmt: skip


async def bound(api: ApiInstance, *sessions: str, pool: PoolKey = CHAT) -> None:
    """Bind the sessions at the pool's only instance, each with a decision and a migration."""
    names = [f"a-{pool.namespace}", f"b-{pool.namespace}"]
    await api.pool_operator.put_pool_state(pool, a_state(*(an_instance(name, InstanceState.SERVING) for name in names)))
    made, now = [], api.clock().timestamp()
    for number, session in enumerate(sessions):
        first = replace(a_binding(session, names[0]), pool=pool, id=f"{pool}-{number}-0", at=now)
        moved = replace(first, id=f"{pool}-{number}-1", instance=names[1], previous=names[0], based_on=1, reason=BindingReason.HOTSPOT)
        made.append((first, moved))
    migrations = tuple(
        MigrationRecord(
            id=moved.id, pool=pool, session=moved.session, request="", source=names[0], target=names[1], trigger=BindingReason.HOTSPOT,
            at=now, predicted_source_ttft_seconds=None, predicted_target_ttft_seconds=None, benefit_seconds=None, tokens_recomputed=0,
            outcome=MoveOutcome.UNDERWAY,
        )
        for _, moved in made
    )  # fmt: skip
    await api.router.post_report(a_report(f"first in {pool}", bindings=tuple(first for first, _ in made)))
    moves, decisions = tuple(moved for _, moved in made), tuple(a_decision(pool, session, now) for session in sessions)
    await api.router.post_report(a_report(f"then in {pool}", bindings=moves, migrations=migrations, decisions=decisions))


async def named(api: ApiInstance, session: str) -> dict[str, Any]:
    """Return the sessions that each way to name a session finds."""
    pool = {"pool": str(CHAT), "session": session}
    kept = (await api.operator.keep_session(CHAT, KeepSessionRequest(session=session))).session
    await api.operator.let_session_go(CHAT, session)
    assert (await api.viewer.kept_sessions(CHAT)).sessions == []
    plan = await api.admin.create_plan(CHAT, PlanRequest(kind=PlanKind.UNPIN, session=session))
    return {
        "session": (await api.viewer.session(CHAT, session)).session.session,
        "tree": (await api.viewer.tree(CHAT, session)).root,
        "kept": kept,
        "plan": plan.target.partition("/chat/")[2],
        "decisions": [one.session for one in (await api.viewer.decisions(pool)).items],
        "decisions of all pools": [one.session for one in (await api.viewer.decisions({"session": session})).items],
        "migrations": [one.session for one in (await api.viewer.migrations(pool)).items],
        "flows": ["-"] * sum(one.count for one in (await api.viewer.migration_matrix(pool)).flows),
    }


async def ways_to_name(api: ApiInstance, session: str, pool: PoolKey = CHAT) -> list[Any]:
    """Return the problems of every way to name a session that several keys have."""
    wanted = {"pool": str(pool), "session": session}
    ways = (
        lambda: api.viewer.session(pool, session),
        lambda: api.viewer.tree(pool, session),
        lambda: api.operator.keep_session(pool, KeepSessionRequest(session=session)),
        lambda: api.operator.let_session_go(pool, session),
        lambda: api.admin.create_plan(pool, PlanRequest(kind=PlanKind.UNPIN, session=session)),
        lambda: api.viewer.decisions(wanted),
        lambda: api.viewer.migrations(wanted),
        lambda: api.viewer.reroutes(wanted),
        lambda: api.viewer.migration_matrix(wanted),
    )
    problems = []
    for way in ways:
        with pytest.raises(ApiProblem) as refused:
            await way()
        problems.append(refused.value.problem)
    return problems


async def test_the_only_session_of_a_name_is_found_by_the_name_and_by_its_identity(api: ApiInstance) -> None:
    key = await api.admin.create_gateway_key(GatewayKeyRequest(name="team a"))
    one = session_identity("chat-1", key.id)
    await bound(api, one, "chat-1@0-of-nobody", "chat-10", session_identity("chat-10", GONE), session_identity("CHAT-1", GONE))
    found = await named(api, "chat-1")
    assert found == {
        "session": one, "tree": one, "kept": one, "plan": one, "decisions": [one], "decisions of all pools": [one],
        "migrations": [one], "flows": ["-"],
    }  # fmt: skip
    assert await named(api, one) == found
    for missing in ("chat", "chat-1@", "chat-1@0", f"chat-1@{GONE}"):
        with pytest.raises(ApiProblem) as unknown:
            await api.viewer.session(CHAT, missing)
        assert unknown.value.problem.status == 404
        assert missing in unknown.value.problem.detail


async def test_a_session_without_a_key_is_preferred_to_the_sessions_of_keys_with_its_name(api: ApiInstance) -> None:
    await bound(api, "chat-1", session_identity("chat-1", GONE))
    assert set(map(str, (await named(api, "chat-1")).values())) == {"chat-1", "['chat-1']", "['-']"}


async def test_a_name_of_several_keys_is_refused_with_the_identities_and_the_names_of_the_keys(api: ApiInstance) -> None:
    key = await api.admin.create_gateway_key(GatewayKeyRequest(name="team a"))
    one, other = session_identity("chat-1", key.id), session_identity("chat-1", GONE)
    await bound(api, one, other)
    problems = await ways_to_name(api, "chat-1")
    assert {(problem.status, problem.type) for problem in problems} == {(409, "several-sessions")}
    expected = sorted(
        (SessionOfKey(pool=str(CHAT), session=one, key="team a"), SessionOfKey(pool=str(CHAT), session=other, key=GONE)),
        key=lambda found: found.session,
    )
    listed = ", ".join(f"{found.session} (key {found.key})" for found in expected)
    for problem in problems:
        assert problem.sessions == expected
        assert problem.detail == f"2 sessions of {CHAT} have the name 'chat-1': {listed}"
        assert problem.remedy == "write one of them, with the id of its key"
    assert (await api.viewer.session(CHAT, other)).session.session == other


async def test_a_session_and_its_tree_have_the_name_of_their_key(api: ApiInstance) -> None:
    key = await api.admin.create_gateway_key(GatewayKeyRequest(name="team a"))
    one = session_identity("chat-1", key.id)
    await bound(api, one, session_identity("chat-1", GONE), "chat-2")
    assert {item.session: item.key for item in (await api.viewer.sessions()).items} == {
        one: "team a", session_identity("chat-1", GONE): GONE, "chat-2": None,
    }  # fmt: skip
    assert (await api.viewer.session(CHAT, one)).session.key == (await api.viewer.tree(CHAT, one)).key == "team a"
    assert (await api.viewer.tree(CHAT, "chat-2")).key is None


async def test_without_a_pool_only_sessions_in_sight_are_candidates(api: ApiInstance) -> None:
    mine, theirs = session_identity("chat-1", GONE), session_identity("chat-1", "0" * 16)
    await bound(api, mine)
    await bound(api, theirs, pool=OTHER)
    with pytest.raises(ApiProblem) as several:
        await api.viewer.decisions({"session": "chat-1"})
    assert [(one.pool, one.session) for one in several.value.problem.sessions or ()] == [(str(OTHER), theirs), (str(CHAT), mine)]
    rights = {CHAT.namespace: AccessRole.VIEWER}
    token = await api.admin.create_token(TokenRequest(name="limited", role=AccessRole.NONE, namespaces=rights))
    limited = api.base.with_token(token.secret or "")
    assert [one.session for one in (await limited.decisions({"session": "chat-1"})).items] == [mine]


async def test_a_name_is_searched_for_by_the_primary_key_however_many_sessions_there_are(api: ApiInstance, database_url: str) -> None:
    await bound(api, session_identity("chat-1", GONE))
    with psycopg.connect(plain(database_url), autocommit=True) as filling:
        filling.execute(
            "INSERT INTO sessions SELECT s.pool_id, 'chat-' || n || '@' || substr(md5(n || ''), 1, 16), s.instance, s.version, s.reason, "
            "s.router, s.bound_at, s.migrated_at, s.last_seen_at, s.migrations, s.context_tokens, s.change, s.shared_at, s.rank "
            "FROM sessions s, generate_series(2, 20000) n"
        )
        filling.execute("VACUUM ANALYZE sessions")
    statements: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "AS named" in statement:
            statements.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        await api.viewer.session(CHAT, "chat-1")
        await api.viewer.decisions({"session": "chat-17"})
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert len(statements) == 2
    with psycopg.connect(plain(database_url)) as connection:
        for statement, parameters in statements:
            row = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}".encode(), parameters).fetchone()
            assert row is not None
            scans = list(_scans(row[0][0]["Plan"]))
            assert scans
            for scan in scans:
                assert "pool_id =" in scan["Index Cond"] and ("session >=" in scan["Index Cond"] or "session =" in scan["Index Cond"])
            assert sum(scan["Actual Rows"] * scan["Actual Loops"] + scan.get("Rows Removed by Filter", 0) for scan in scans) <= 2


def _scans(plan: dict[str, Any]) -> Any:
    if plan.get("Relation Name") == "sessions":
        yield plan
    for below in plan.get("Plans", ()):
        yield from _scans(below)
