"""One search over everything that has a page, on a real database."""

from typing import Any

import psycopg
import pytest

from fairlead.reports.decisions import DecisionReason, DecisionRecord, Weighing
from fairlead.routing.contracts.weighing import NOT_RECORDED
from fairlead_api.infra import paging
from fairlead_client.resources.access import AccessRole, TokenRequest
from fairlead_client.resources.search import SearchKind
from fairlead_testing.running.api import CHAT, ApiInstance, a_binding, a_report, a_state, an_instance
from fairlead_testing.running.postgres import plain


async def found(api: ApiInstance, part: str) -> dict[str, list[str]]:
    return {group.kind.value: [hit.id for hit in group.hits] for group in (await api.viewer.search(part)).groups if group.hits}


def a_decision(name: str, at: float, **changes: Any) -> DecisionRecord:
    values: dict[str, Any] = {"request": f"request-{name}", "session": None, "runner_up": None, "prompt_tokens": 10, **changes}
    weighing = Weighing(rule=NOT_RECORDED, candidates=(), considered=1)
    return DecisionRecord(
        id=name, pool=CHAT, at=at, policy="fairlead", table_version=1, chosen="host-a", reason=DecisionReason.SESSION_COLD,
        weighing=weighing, **values,
    )  # fmt: skip


async def test_every_kind_is_found_by_a_part_of_its_name_and_only_so_far_back_as_is_said(
    api: ApiInstance, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("host-a"), an_instance("host-b")))
    with psycopg.connect(plain(database_url)) as connection:
        connection.execute(
            "INSERT INTO plans (id, pool_id, kind, created_at, created_by, expires_at, state, uid, generation, object, change, inverse,"
            " diff, effect, patch) SELECT 'plan-77', id, 'scale', now(), 'ada', now(), 'open', uid, 1, '{}', '{}', '{}', '[]', '{}', ''"
            " FROM pools"
        )
    now = api.clock().timestamp()
    bindings = (a_binding("574-r2", "host-a", id="b1"), a_binding("10730-r8", "host-b", id="b2"))
    made = tuple(a_decision(f"d{index}", now - index) for index in range(6))
    await api.router.post_report(a_report("r1", bindings=bindings, decisions=made))

    assert (await found(api, "30-R8")).get("session") is None, "the case of a session's letters matters"
    assert await found(api, "0730-r") == {"session": ["10730-r8"]}
    assert await found(api, "ost-B") == {"instance": ["host-b"]}
    assert await found(api, "an-77") == {"plan": ["plan-77"]}
    assert (await found(api, str(CHAT)[3:]))["pool"] == [str(CHAT)]
    assert (await found(api, "uest-d3")) == {"request": ["d3"]}
    assert await found(api, "") == {}
    assert await found(api, "%") == {}
    assert await found(api, "\0") == {}
    with psycopg.connect(plain(database_url)) as connection:
        row = connection.execute("SELECT id, object FROM audit_log ORDER BY at DESC LIMIT 1").fetchone()
    assert row is not None
    assert str(row[0]) in (await found(api, row[1]))["audit"]

    monkeypatch.setattr(paging, "SEARCHED", 1)
    sessions = {group.kind: group for group in (await api.viewer.search("zz")).groups}[SearchKind.SESSION]
    assert (sessions.hits, sessions.more) == ([], False)
    assert sessions.since is not None, "a part of two letters is looked for in the newest sessions only"
    monkeypatch.setattr(paging, "SEARCHED", 2)
    groups = {group.kind: group for group in (await api.viewer.search("uest-d3")).groups}
    assert groups[SearchKind.REQUEST].hits == []
    assert groups[SearchKind.REQUEST].since is not None, "older decisions were not looked through"
    assert (await found(api, "request-d3"))["request"] == ["d3"], "a whole id is found however old"
    groups = {group.kind: group for group in (await api.viewer.search("request-d", limit=1)).groups}
    assert ([hit.id for hit in groups[SearchKind.REQUEST].hits], groups[SearchKind.REQUEST].more) == (["d0"], True)


async def test_nothing_of_another_namespace_is_found(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("host-a")))
    bindings, decisions = (a_binding("session-1", "host-a", id="b1"),), (a_decision("d1", api.clock().timestamp()),)
    await api.router.post_report(a_report("r1", bindings=bindings, decisions=decisions))
    found_of = {}
    for namespace in (CHAT.namespace, "elsewhere"):
        request = TokenRequest(name=namespace, role=AccessRole.NONE, namespaces={namespace: AccessRole.VIEWER})
        made = await api.admin.create_token(request)
        seen = api.base.with_token(made.secret or "")
        reports = [await seen.search(part) for part in (str(CHAT), "host-a", "session-1", "uest-d1", "request-d1")]
        found_of[namespace] = {group.kind for report in reports for group in report.groups if group.hits}
    assert found_of[CHAT.namespace] >= {SearchKind.POOL, SearchKind.INSTANCE, SearchKind.SESSION, SearchKind.REQUEST}
    assert found_of["elsewhere"] == set()
