"""Comments over HTTP and in Postgres: who writes, reads and deletes them, their subjects, and their audit entries."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from fairlead.tables import PoolKey
from fairlead_api.comments.rules import LONGEST_TEXT, MOST_OWN
from fairlead_client.client import ControlApi
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole, TokenRequest
from fairlead_client.resources.comments import CommentRequest
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.series import AnnotationKind
from fairlead_testing.fakes.cluster_gateway import FakeClusterGateway
from fairlead_testing.fakes.public_data.loads import HOSTILE
from fairlead_testing.running.api import CHAT, ApiInstance, a_state, an_instance, running_api

OTHER = PoolKey(namespace="other", name="code")
HOUR = CommentRequest(text="load test by team x", start="now-1h", end="now-30m")


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[ApiInstance]:
    cluster = FakeClusterGateway()
    cluster.add(CHAT, 2)
    async with running_api(database_url, overrides={"cluster": cluster}) as instance:
        yield instance


async def person(api: ApiInstance, name: str, **namespaces: AccessRole) -> ControlApi:
    made = await api.admin.create_token(TokenRequest(name=name, role=AccessRole.NONE, namespaces=namespaces))
    assert made.secret is not None
    return api.base.with_token(made.secret)


async def refused(status: int, call: object) -> str:
    with pytest.raises(ApiProblem) as caught:
        await call  # type: ignore[misc]  # an awaitable call
    assert caught.value.problem.status == status, caught.value.problem
    return f"{caught.value.problem.type} {caught.value.problem.field}"


async def texts(api: ControlApi, **filters: str) -> list[str]:
    return [one.text for one in (await api.comments(dict(filters))).comments]


async def with_pools(api: ApiInstance) -> None:
    for pool in (CHAT, OTHER):
        await api.pool_operator.put_pool_state(pool, a_state(an_instance("a")))


async def test_a_comment_on_a_range_is_read_in_it_marked_in_charts_and_audited(api: ApiInstance) -> None:
    await with_pools(api)
    made = await api.viewer.add_comment(CHAT, CommentRequest(text=f" {HOSTILE}\r\n=1+1 ", start="now-1h", end="now-30m"))
    assert (made.text, made.author, made.end - made.start, made.plan) == (f"{HOSTILE}\n=1+1", "test-viewer", timedelta(minutes=30), None)
    assert (await api.operator.comments({"pool": str(CHAT)})).comments == [made]
    inside = {"from": "now-45m", "to": "now-40m"}
    assert await texts(api.viewer, **inside) == [made.text]
    assert await texts(api.viewer, **{"from": "now-29m"}) == await texts(api.viewer, pool=str(OTHER)) == []
    (mark,) = (await api.viewer.annotations(CHAT, start="now-45m", end="now-40m")).items  # the pool's revision came later
    assert (mark.kind, mark.at, mark.until, mark.words) == (AnnotationKind.COMMENT, made.start, made.end, f"test-viewer: {HOSTILE} =1+1")
    marks = (await api.viewer.annotations(OTHER, start="now-2h")).items
    assert AnnotationKind.COMMENT not in {one.kind for one in marks}
    await api.viewer.delete_comment(made.id)
    assert await texts(api.viewer) == []
    added, deleted = (await api.viewer.audit({"action": "comment.*", "sort": "at"})).items
    assert (added.action, added.object, added.actor) == ("comment.added", str(CHAT), "test-viewer")
    assert added.after == deleted.before and added.after is not None and added.after["text"] == made.text
    assert (await api.viewer.audit_verification()).intact


async def test_a_comment_on_a_plan_stands_at_the_plan_and_at_its_moment(api: ApiInstance) -> None:
    await with_pools(api)
    plan = await api.operator.create_plan(CHAT, PlanRequest(kind=PlanKind.SCALE, replicas=3))
    made = await api.viewer.add_comment(CHAT, CommentRequest(text="agreed", plan=plan.id))
    assert (made.start, made.end) == (plan.created_at, plan.created_at)
    assert await texts(api.viewer, plan=plan.id) == ["agreed"]
    assert await texts(api.viewer, plan="p-other") == []
    (entry,) = (await api.viewer.audit({"action": "comment.added"})).items
    assert entry.plan == plan.id
    assert await refused(404, api.viewer.add_comment(OTHER, CommentRequest(text="x", plan=plan.id))) == "not-found None"
    marks = (await api.viewer.annotations(CHAT, start="now-1h")).items
    assert f"test-viewer on plan {plan.id}: agreed" in [one.words for one in marks]


async def test_who_reads_writes_and_deletes(api: ApiInstance) -> None:
    await with_pools(api)
    ada, eve = await person(api, "ada", default=AccessRole.VIEWER), await person(api, "eve", default=AccessRole.OPERATOR)
    chief, zoe = await person(api, "chief", default=AccessRole.ADMIN), await person(api, "zoe", other=AccessRole.ADMIN)
    first, second = await ada.add_comment(CHAT, HOUR), await ada.add_comment(CHAT, HOUR)
    await refused(403, zoe.add_comment(CHAT, HOUR))
    await api.viewer.add_comment(OTHER, CommentRequest(text="elsewhere", start="now-1h"))
    seen = [sorted(await texts(one)) for one in (ada, eve, zoe, api.viewer)]
    both = [HOUR.text, HOUR.text]
    assert seen == [both, both, ["elsewhere"], ["elsewhere", *both]]
    for somebody, status in ((eve, 403), (zoe, 404), (api.viewer, 403)):
        await refused(status, somebody.delete_comment(first.id))
    await ada.delete_comment(first.id)
    await chief.delete_comment(second.id)
    await refused(404, ada.delete_comment(first.id))
    assert await texts(ada) == []


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (CommentRequest(text=" \n ", start="now-1h"), "text"),
        (CommentRequest(text="x" * (LONGEST_TEXT + 1), start="now-1h"), "text"),
        (CommentRequest(text="a\u202eb", start="now-1h"), "text"),
        (CommentRequest(text="x"), "start"),
        (CommentRequest(text="x", start="yesterday"), "start"),
        (CommentRequest(text="x", start="now", end="now-1h"), "start"),
        (CommentRequest(text="x", start="now-1h", end="now+1h"), "end"),
        (CommentRequest(text="x", start="now-93d"), "start"),
        (CommentRequest(text="x", plan="p", start="now-1h"), "plan"),
        (CommentRequest(text="x", plan="p" * 101), "plan"),
    ],
)
async def test_what_no_comment_says_is_refused_by_its_field(asked: CommentRequest, field: str, api: ApiInstance) -> None:
    await with_pools(api)
    assert await refused(422, api.viewer.add_comment(CHAT, asked)) == f"invalid-input {field}"


async def test_two_at_once_do_not_pass_the_bound_of_a_person_and_reads_are_cut_and_say_so(
    api: ApiInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_pools(api)
    monkeypatch.setattr("fairlead_api.comments.store.MOST_OWN", 3)
    monkeypatch.setattr("fairlead_api.comments.store.MOST", 2)
    added = await asyncio.gather(*(api.viewer.add_comment(CHAT, HOUR) for _ in range(5)), return_exceptions=True)
    problems = [one.problem for one in added if isinstance(one, ApiProblem)]
    assert [(one.status, one.type) for one in problems] == [(409, "too-many-comments")] * 2
    await api.operator.add_comment(CHAT, HOUR)
    found = await api.viewer.comments({"pool": str(CHAT)})
    assert (len(found.comments), found.complete) == (2, False)
    assert MOST_OWN > 3
