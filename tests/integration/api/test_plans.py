"""Plan, apply, undo against a real database and a Kubernetes API of the test's own."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.instances import InstanceState
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole, TokenRequest
from fairlead_client.resources.plans import ApplyRequest
from fairlead_testing.fakes.cluster_gateway import FakeClusterGateway
from fairlead_testing.running.api import CHAT, ApiInstance, a_binding, a_report, a_state, an_instance, running_api


@pytest.fixture
def cluster() -> FakeClusterGateway:
    fake = FakeClusterGateway()
    fake.add(CHAT, 4)
    return fake


@pytest.fixture
async def api(database_url: str, cluster: FakeClusterGateway) -> AsyncIterator[ApiInstance]:
    async with running_api(database_url, overrides={"cluster": cluster}) as instance:
        await instance.pool_operator.put_pool_state(
            CHAT, a_state(*(an_instance(name) for name in "abc"), an_instance("d", InstanceState.STARTING))
        )
        bindings = [a_binding(f"s{number}", "abc"[number % 3 if number < 6 else 2], context_tokens=100) for number in range(12)]
        await instance.router.post_report(a_report("r1", bindings=tuple(bindings)))
        yield instance


async def problem_of(call: object) -> ApiProblem:
    with pytest.raises(ApiProblem) as caught:
        await call  # type: ignore[misc]  # any awaitable of the client
    return caught.value


async def test_a_plan_names_victims_and_what_would_be_lost_and_changes_nothing(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    plan = await api.operator.create_scale_plan(CHAT, 2)
    assert plan.effect.victims == ["d", "a"]
    assert (plan.effect.sessions_moved, plan.effect.cache_tokens_lost) == (2, 200)
    assert plan.effect.heavy  # two of twelve sessions
    assert plan.diff == [{"op": "replace", "path": "/spec/replicas", "before": 4, "after": 2}]
    assert (cluster.writes, cluster.dry_runs) == ([], 1)


async def test_applying_twice_acts_once_and_undo_takes_it_back(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    plan = await api.operator.create_scale_plan(CHAT, 6)
    cluster.status_moves = 2
    first, again = await asyncio.gather(*(api.operator.apply_plan(plan.id, ApplyRequest(reason="load")) for _ in range(2)))
    assert first.state == again.state == "applied"
    assert [replicas for replicas, _ in cluster.writes] == [6]
    assert cluster.writes[0][1]["fairlead.dev/changed-by"] == "test-operator"
    undo = await api.operator.undo_plan(plan.id)
    assert undo.undo_of == plan.id
    await api.operator.apply_plan(undo.id, ApplyRequest(confirm="chat", reason="back"))
    assert cluster.pools[CHAT].replicas == 4
    assert (await api.viewer.plan(plan.id)).state == "undone"
    actions = [entry.action for entry in (await api.admin.audit({"action": "plan.*"})).items]
    assert actions == ["plan.undone", "plan.created", "plan.applied", "plan.created"]


async def test_an_apply_whose_answer_was_lost_can_be_sent_again(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    plan = await api.operator.create_scale_plan(CHAT, 6)
    cluster.lose_answers = 1
    lost = await problem_of(api.operator.apply_plan(plan.id, ApplyRequest()))
    assert lost.retryable
    assert (await api.operator.apply_plan(plan.id, ApplyRequest())).state == "applied"
    assert len(cluster.writes) == 1


async def test_a_heavy_plan_wants_the_name_and_a_reason(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    plan = await api.operator.create_scale_plan(CHAT, 0)
    assert plan.effect.heavy
    assert plan.effect.warnings
    assert (await problem_of(api.operator.apply_plan(plan.id, ApplyRequest(reason="night")))).problem.field == "confirm"
    assert (await problem_of(api.operator.apply_plan(plan.id, ApplyRequest(confirm="chat")))).problem.field == "reason"
    assert cluster.writes == []
    assert (await api.operator.apply_plan(plan.id, ApplyRequest(confirm="chat", reason="night"))).state == "applied"


async def test_a_plan_for_a_changed_object_is_refused(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    plan = await api.operator.create_scale_plan(CHAT, 6)
    cluster.edit(CHAT, 5)
    assert (await problem_of(api.operator.apply_plan(plan.id, ApplyRequest()))).problem.type == "object-changed"
    assert cluster.writes == []
    assert (await api.viewer.plan(plan.id)).state == "superseded", "it can never be applied again, and says so"


async def test_a_plan_expires_after_ten_minutes(api: ApiInstance) -> None:
    plan = await api.operator.create_scale_plan(CHAT, 6)
    api.clock.skip(601)
    assert (await problem_of(api.operator.apply_plan(plan.id, ApplyRequest()))).problem.type == "plan-expired"
    assert (await api.viewer.plan(plan.id)).state == "expired"


async def test_undo_is_refused_after_an_hour_or_another_change(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    plan = await api.operator.create_scale_plan(CHAT, 6)
    assert (await problem_of(api.operator.undo_plan(plan.id))).problem.type == "not-applied"
    await api.operator.apply_plan(plan.id, ApplyRequest())
    cluster.edit(CHAT, 7)
    assert (await problem_of(api.operator.undo_plan(plan.id))).problem.type == "object-changed"
    api.clock.skip(3601)
    assert (await problem_of(api.operator.undo_plan(plan.id))).problem.type == "undo-expired"


async def test_what_gitops_owns_is_shown_with_its_patch_but_not_applied(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    cluster.add(CHAT, 4, annotations={"argocd.argoproj.io/tracking-id": "shop:fairlead.dev/InferencePool:default/chat"})
    plan = await api.operator.create_scale_plan(CHAT, 6)
    assert plan.owner == "Argo CD (shop)"
    assert plan.patch == "spec:\n  replicas: 6\n"
    refused = await problem_of(api.operator.apply_plan(plan.id, ApplyRequest()))
    assert "Argo CD (shop)" in refused.problem.detail
    assert cluster.writes == []


async def test_the_api_servers_own_refusal_reaches_the_person_at_planning(api: ApiInstance) -> None:
    refused = await problem_of(api.operator.create_scale_plan(CHAT, 65))
    assert refused.problem.status == 422
    assert "maxReplicas" in refused.problem.detail


async def test_somebody_elses_applied_plan_is_a_conflict(api: ApiInstance) -> None:
    token = await api.admin.create_token(TokenRequest(name="second", role=AccessRole.OPERATOR))
    plan = await api.operator.create_scale_plan(CHAT, 6)
    await api.operator.apply_plan(plan.id, ApplyRequest())
    refused = await problem_of(api.base.with_token(token.secret).apply_plan(plan.id, ApplyRequest()))
    assert refused.problem.type == "already-applied"


async def test_without_a_cluster_planning_answers_unavailable(database_url: str) -> None:
    async with running_api(database_url) as api:
        refused = await problem_of(api.operator.create_scale_plan(CHAT, 3))
        assert (refused.problem.status, refused.problem.type) == (503, "cluster-unavailable")
