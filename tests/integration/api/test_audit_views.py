"""Saved views of the audit log over HTTP and in Postgres: who sees them, who changes them, and what is audited."""

import asyncio

import pytest

from fairlead_api.audit.views import MOST_OWN
from fairlead_client.client import ControlApi
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole, TokenRequest
from fairlead_client.resources.audit import AuditKind, AuditView, AuditViewChange, AuditViewRequest
from fairlead_testing.running.api import CHAT, ApiInstance, a_state, an_instance


async def person(api: ApiInstance, name: str, role: AccessRole = AccessRole.NONE, **namespaces: AccessRole) -> ControlApi:
    made = await api.admin.create_token(TokenRequest(name=name, role=role, namespaces=namespaces))
    assert made.secret is not None
    return api.base.with_token(made.secret)


async def refused(status: int, call: object) -> str:
    with pytest.raises(ApiProblem) as caught:
        await call  # type: ignore[misc]  # an awaitable call
    assert caught.value.problem.status == status, caught.value.problem
    return caught.value.problem.type


async def names(api: ControlApi) -> list[str]:
    return [one.name for one in (await api.audit_views()).views]


async def test_a_view_is_saved_renamed_shared_and_deleted_and_each_is_in_the_audit_log(api: ApiInstance) -> None:
    asked = AuditViewRequest(
        name="changes", pool=str(CHAT), kind=AuditKind.HUMAN, actor="a*", action="plan.*", object="default/chat*", start="now-7d", end="now"
    )
    made = await api.operator.save_audit_view(asked)
    assert (await api.operator.audit_views()).views == [made]
    assert await names(api.viewer) == []
    shared = await api.operator.change_audit_view(made.id, AuditViewChange(name="all changes", shared=True))
    assert (await api.viewer.audit_views()).views == [shared]
    await api.operator.delete_audit_view(made.id)
    assert await names(api.operator) == []
    assert await refused(404, api.operator.delete_audit_view(made.id)) == "not-found"
    entries = (await api.viewer.audit({"action": "audit-view.*", "sort": "at"})).items
    assert [(one.action, one.object, one.actor) for one in entries] == [
        (f"audit-view.{what}", made.id, "test-operator") for what in ("saved", "changed", "deleted")
    ]
    assert entries[0].after is not None and entries[1].before is not None and entries[1].after is not None
    assert entries[0].after["action"] == "plan.*"
    assert (entries[1].before["name"], entries[1].after["name"], entries[1].after["shared"]) == ("changes", "all changes", True)
    assert (await api.viewer.audit_verification()).intact


async def test_a_views_query_lists_the_same_entries_as_its_filters(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    await person(api, "ada", AccessRole.VIEWER)
    for query in (AuditViewRequest(name="pool", pool=str(CHAT), start="now-1h"), AuditViewRequest(name="tokens", action="token.*")):
        made = await api.viewer.save_audit_view(query)
        found = (await api.viewer.audit(made.query)).items
        assert found
        assert all(one.action.startswith("token.") or one.object.startswith(str(CHAT)) for one in found)


async def test_who_sees_and_who_may_write_a_view(api: ApiInstance) -> None:
    ada = await person(api, "ada", default=AccessRole.OPERATOR)
    eve = await person(api, "eve", default=AccessRole.VIEWER)
    zoe = await person(api, "zoe", elsewhere=AccessRole.ADMIN)
    own = await ada.save_audit_view(AuditViewRequest(name="own", pool=str(CHAT)))
    of_pool = await ada.save_audit_view(AuditViewRequest(name="of chat", pool=str(CHAT), shared=True))
    assert await refused(403, ada.save_audit_view(AuditViewRequest(name="of all", shared=True))) == "denied"
    await refused(403, eve.save_audit_view(AuditViewRequest(name="of chat", pool=str(CHAT), shared=True)))
    await api.operator.save_audit_view(AuditViewRequest(name="of all", shared=True))
    seen = [await names(one) for one in (ada, eve, zoe, api.viewer)]
    assert seen == [["of chat", "own"], ["of chat"], [], ["of all", "of chat"]]
    for somebody, view, status in ((eve, of_pool, 403), (eve, own, 404), (zoe, of_pool, 404), (api.operator, of_pool, 403)):
        await refused(status, somebody.change_audit_view(view.id, AuditViewChange(name="mine")))
        await refused(status, somebody.delete_audit_view(view.id))
    await api.admin.delete_audit_view(of_pool.id)
    await refused(404, api.admin.delete_audit_view(own.id))
    assert await names(ada) == ["own"]


async def test_a_name_is_taken_once_by_each_person_and_what_cannot_be_saved_names_its_field(api: ApiInstance) -> None:
    await api.viewer.save_audit_view(AuditViewRequest(name="mine"))
    other = await api.viewer.save_audit_view(AuditViewRequest(name="other"))
    await api.operator.save_audit_view(AuditViewRequest(name="mine"))
    assert await refused(409, api.viewer.save_audit_view(AuditViewRequest(name="mine"))) == "view-exists"
    assert await refused(409, api.viewer.change_audit_view(other.id, AuditViewChange(name="mine"))) == "view-exists"
    await api.viewer.change_audit_view(other.id, AuditViewChange(name="other"))
    for bad in (
        AuditViewRequest(name=""),
        AuditViewRequest(name="x", start="2026-11-21T10:00:00Z"),
        AuditViewRequest(name="x", pool="chat"),
    ):
        assert await refused(422, api.viewer.save_audit_view(bad)) == "invalid-input"


async def test_requests_at_once_do_not_pass_the_bound(api: ApiInstance) -> None:
    async def save(number: int) -> AuditView | ApiProblem:
        try:
            return await api.viewer.save_audit_view(AuditViewRequest(name=f"v{number}"))
        except ApiProblem as problem:
            return problem

    for start in range(0, MOST_OWN - 2, 8):
        await asyncio.gather(*(save(number) for number in range(start, min(start + 8, MOST_OWN - 2))))
    last = await asyncio.gather(*(save(100 + number) for number in range(5)))
    assert sum(isinstance(one, AuditView) for one in last) == 2
    assert len(await names(api.viewer)) == MOST_OWN
