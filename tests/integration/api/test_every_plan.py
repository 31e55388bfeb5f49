"""Every kind of plan is planned, applied and undone, which restores the object; callers without the right change
nothing.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.tables import PoolKey
from fairlead_api.plans.objects import Target
from fairlead_api.plans.rollouts import StoredRevision
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.plans import ApplyRequest
from fairlead_testing.fakes.cluster_gateway import FakeClusterGateway
from fairlead_testing.running.api import CHAT, ApiInstance, a_binding, a_report, a_state, an_instance, running_api

SCHEDULE = {"cron": "0 8 * * 1-5", "duration": "10h", "roles": [{"name": "both", "replicas": 4}]}
REQUESTS: dict[PlanKind, PlanRequest] = {
    PlanKind.SCALE: PlanRequest(kind=PlanKind.SCALE, replicas=5),
    PlanKind.POLICY: PlanRequest(kind=PlanKind.POLICY, fields={"policy": "fairlead", "prefillsInFlight": 2}),
    PlanKind.SLO: PlanRequest(kind=PlanKind.SLO, fields={"ttft": "2s", "percentile": 95}),
    PlanKind.EARLY_REJECTION: PlanRequest(kind=PlanKind.EARLY_REJECTION, fields={"mode": "Load"}),
    PlanKind.RING: PlanRequest(kind=PlanKind.RING, fields={"anchorsPerInstance": 80}),
    PlanKind.CORDON: PlanRequest(kind=PlanKind.CORDON, instance="a"),
    PlanKind.UNCORDON: PlanRequest(kind=PlanKind.UNCORDON, instance="b"),
    PlanKind.SCHEDULE: PlanRequest(kind=PlanKind.SCHEDULE, fields={"name": "office", "action": "set", "spec": SCHEDULE}),
    PlanKind.SCALING: PlanRequest(kind=PlanKind.SCALING, fields={"mode": "Advise"}),
    PlanKind.RATIO: PlanRequest(kind=PlanKind.RATIO, fields={"band": 0.4}),
    PlanKind.DRAIN: PlanRequest(kind=PlanKind.DRAIN, instance="a"),
    PlanKind.UNDRAIN: PlanRequest(kind=PlanKind.UNDRAIN, instance="c"),
    PlanKind.ROLLOUT: PlanRequest(kind=PlanKind.ROLLOUT, fields={"paused": True}),
    PlanKind.ROLLBACK: PlanRequest(kind=PlanKind.ROLLBACK, revision=1),
    PlanKind.MIGRATIONS: PlanRequest(kind=PlanKind.MIGRATIONS, fields={"migrations": "Paused"}),
    PlanKind.DELETE: PlanRequest(kind=PlanKind.DELETE),
    PlanKind.MOVE: PlanRequest(kind=PlanKind.MOVE, session="s", instance="b"),
    PlanKind.UNPIN: PlanRequest(kind=PlanKind.UNPIN, session="s"),
    PlanKind.REVERT: PlanRequest(kind=PlanKind.REVERT, revision=1),
    PlanKind.WEIGHT: PlanRequest(kind=PlanKind.WEIGHT, instance="a", fields={"weight": 0.5}),
    PlanKind.BOUNDS: PlanRequest(kind=PlanKind.BOUNDS, fields={"minReplicas": 5, "maxReplicas": 16}),
    PlanKind.PACE: PlanRequest(kind=PlanKind.PACE, fields={"scaleDown": {"cooldown": "5m"}}),
    PlanKind.SESSIONS: PlanRequest(kind=PlanKind.SESSIONS, fields={"session": {"ttl": "2h"}}),
    PlanKind.DRAINING: PlanRequest(kind=PlanKind.DRAINING, fields={"timeout": "10m"}),
    PlanKind.FAIRNESS: PlanRequest(kind=PlanKind.FAIRNESS, fields={"fairness": "Tenants"}),
    PlanKind.CLASSES: PlanRequest(kind=PlanKind.CLASSES, fields={"priorityClasses": [{"name": "batch", "priority": -10}]}),
    PlanKind.SPEC: PlanRequest(kind=PlanKind.SPEC, fields={"model": "m", "replicas": 6, "slo": {"ttft": "3s"}}),
}
ELSEWHERE = {PlanKind.ENGINES, PlanKind.CREATE}
"""Plans only for pools of `fairlead serve` (tested in tests/unit/fairlead_serve) or for no pool yet (below)."""
SENT = ApplyRequest(confirm="chat", reason="tried")


@pytest.fixture
def cluster() -> FakeClusterGateway:
    fake = FakeClusterGateway()
    fake.add(CHAT, 4)
    fake.edit(CHAT, engine={"type": "simulated", "prefillTokensPerSecond": 7000})
    for name in "abc":
        fake.add_instance(CHAT, name)
    for name, mark in (("b", "fairlead.dev/cordoned"), ("c", "fairlead.dev/drain")):
        fake.objects[Target.of_instance(CHAT, name)].annotations[mark] = "true"  # type: ignore[index]  # a dict in the fake
    return fake


@pytest.fixture
async def api(database_url: str, cluster: FakeClusterGateway) -> AsyncIterator[ApiInstance]:
    async with running_api(database_url, overrides={"cluster": cluster}) as instance:
        await instance.pool_operator.put_pool_state(CHAT, a_state(*(an_instance(name) for name in "abc")))
        await instance.router.post_report(a_report("r1", bindings=(a_binding("s", "a", context_tokens=100),)))
        yield instance


async def present(api: ApiInstance, cluster: FakeClusterGateway) -> dict[str, Any]:
    """Return the fields that plans change, without the marks that plans leave."""
    marks = {"fairlead.dev/plan", "fairlead.dev/changed-by", "fairlead.dev/change-reason"}
    objects = {
        str(target): (found.spec, {name: value for name, value in found.annotations.items() if name not in marks}, found.labels)
        for target, found in cluster.objects.items()
    }
    return {**objects, "home of s": (await api.viewer.session(CHAT, "s")).session.instance if objects else None}


def test_the_table_has_every_kind() -> None:
    assert REQUESTS.keys() | ELSEWHERE == set(PlanKind)


@pytest.mark.timeout(1800)
async def test_every_kind_is_planned_applied_and_undone_and_all_is_as_before(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    cluster.history = [StoredRevision(name="chat-1", number=1, created_at=api.clock(), data={"engine": {"type": "simulated"}})]
    clients = {AccessRole.VIEWER: api.viewer, AccessRole.OPERATOR: api.operator, AccessRole.ADMIN: api.admin}
    for kind, request in REQUESTS.items():
        for role, client in clients.items():
            before = await present(api, cluster)
            if not role.reaches(kind.facts.role):
                with pytest.raises(ApiProblem) as refused:
                    await client.create_plan(CHAT, request)
                made = await api.admin.create_plan(CHAT, request)
                with pytest.raises(ApiProblem) as not_applied:
                    await client.apply_plan(made.id, SENT)
                assert (refused.value.problem.status, not_applied.value.problem.status) == (403, 403), (kind, role)
                assert await present(api, cluster) == before, (kind, role)
                continue
            plan = await client.create_plan(CHAT, request)
            assert await present(api, cluster) == before, (kind, "planning changes nothing")
            for _ in range(2):
                assert (await client.apply_plan(plan.id, SENT)).state == "applied", kind
            if kind is PlanKind.DELETE:
                await api.pool_operator.delete_pool(CHAT)
            else:
                assert await present(api, cluster) != before, kind
            undo = await client.undo_plan(plan.id)
            await client.apply_plan(undo.id, SENT)
            if kind is PlanKind.DELETE:
                made_again = a_state(*(an_instance(name) for name in "abc"), uid="made-again")
                await api.pool_operator.put_pool_state(CHAT, made_again)
                assert (await api.viewer.session(CHAT, "s")).session.instance is None, "what was lost stays lost"
                await api.router.post_report(a_report(f"r-{role}", bindings=(a_binding("s", "a", id=f"c-{role}", based_on=1),)))
            assert await present(api, cluster) == before, kind
            assert (await api.viewer.plan(plan.id)).state == "undone", kind


async def test_what_no_longer_fits_is_planned_again_of_the_object_as_it_is(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    plan = await api.admin.create_plan(CHAT, REQUESTS[PlanKind.SLO])
    cluster.edit(CHAT, slo={"ttft": "4s"})
    with pytest.raises(ApiProblem, match=r"ttft was 5s and is 4s, where the plan sets .*spec.slo.ttft to 2s"):
        await api.admin.apply_plan(plan.id, SENT)
    anew = await api.admin.plan_again(plan.id)
    assert {one["path"]: one["before"] for one in anew.diff} == {"/spec/slo/percentile": 90, "/spec/slo/ttft": "4s"}
    assert (await api.admin.apply_plan(anew.id, SENT)).state == "applied"
    with pytest.raises(ApiProblem, match="was applied by test-admin"):
        await api.admin.plan_again(anew.id)
    stale = await api.operator.create_plan(CHAT, REQUESTS[PlanKind.SCHEDULE])
    cluster.edit(CHAT, scaling={"schedules": [{**SCHEDULE, "name": "night"}]})
    with pytest.raises(ApiProblem, match="replaces a list"):
        await api.operator.plan_again(stale.id)


async def test_a_pool_is_planned_created_and_undone_and_its_name_is_free_again(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    fresh = PoolKey(namespace="default", name="fresh")
    request = PlanRequest(kind=PlanKind.CREATE, fields={"model": "m", "replicas": 3})
    with pytest.raises(ApiProblem, match="role"):
        await api.operator.create_plan(fresh, request)
    plan = await api.admin.create_plan(fresh, request)
    assert (plan.effect.instances_added, plan.diff[0]["before"]) == (3, None)
    assert Target.of_pool(fresh) not in cluster.objects, "planning creates nothing"
    assert [one.name for one in (await api.viewer.pools()).items] == ["chat"], "a planned pool is no pool yet"
    await api.admin.apply_plan(plan.id, SENT)
    assert cluster.objects[Target.of_pool(fresh)].spec["replicas"] == 3
    await api.pool_operator.put_pool_state(fresh, a_state(uid="fresh-uid"))
    undo = await api.admin.undo_plan(plan.id)
    await api.admin.apply_plan(undo.id, ApplyRequest(confirm="fresh", reason="tried"))
    assert Target.of_pool(fresh) not in cluster.objects
    assert (await api.admin.plan(plan.id)).state == "undone"
    assert (await api.admin.plans({"pool": "default/fresh"})).items


async def test_a_pool_that_exists_or_has_a_wrong_spec_is_not_planned(api: ApiInstance) -> None:
    with pytest.raises(ApiProblem, match="there is a pool default/chat already"):
        await api.admin.create_plan(CHAT, PlanRequest(kind=PlanKind.CREATE, fields={"model": "m"}))
    with pytest.raises(ApiProblem, match=r"spec\.slo\.ttft"):
        await api.admin.create_plan(
            PoolKey(namespace="default", name="fresh"), PlanRequest(kind=PlanKind.CREATE, fields={"model": "m", "slo": {"ttft": "soon"}})
        )
