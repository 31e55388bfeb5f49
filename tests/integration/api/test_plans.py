"""Plan, apply, undo against a real database and a Kubernetes API of the test's own."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.latency_cells import cell_of
from fairlead.reports.decisions import CandidateScore, DecisionReason, DecisionRecord, Weighing
from fairlead.reports.objectives import SloSample
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole, TokenRequest
from fairlead_client.resources.plans import ApplyRequest, PlanKind, PlanRequest
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
    assert [change for change, _ in cluster.writes] == [{"replicas": 6}]
    assert cluster.writes[0][1]["fairlead.dev/changed-by"] == "test-operator"
    undo = await api.operator.undo_plan(plan.id)
    assert undo.undo_of == plan.id
    await api.operator.apply_plan(undo.id, ApplyRequest(confirm="chat", reason="back"))
    assert cluster.spec(CHAT)["replicas"] == 4
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
    cluster.edit(CHAT, replicas=5)
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
    cluster.edit(CHAT, replicas=7)
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


async def test_a_role_is_scaled_where_its_number_is_declared(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    roles = [{"name": "prefill", "replicas": 2, "maxReplicas": 8}, {"name": "decode", "maxReplicas": 8}]
    cluster.edit(CHAT, replicas=1, roles=roles)
    cluster.add_role(CHAT, Role.DECODE, 2)
    prefill, decode = [
        await api.operator.create_plan(CHAT, PlanRequest(kind=PlanKind.SCALE, role=role, replicas=5))
        for role in (Role.PREFILL, Role.DECODE)
    ]
    assert (prefill.target, decode.target) == ("InferencePool default/chat", "InferencePoolRole default/chat-decode")
    assert [one["path"] for plan in (prefill, decode) for one in plan.diff] == ["/spec/roles/prefill/replicas", "/spec/replicas"]
    assert decode.effect.instances_added == 3
    applied = await api.operator.apply_plan(decode.id, ApplyRequest())
    inverse = await api.operator.undo_plan(applied.id)
    assert (inverse.target, inverse.diff[0]["after"]) == (decode.target, 2)
    beyond = PlanRequest(kind=PlanKind.SCALE, role=Role.DECODE, replicas=9)
    assert "maxReplicas" in (await problem_of(api.operator.create_plan(CHAT, beyond))).problem.detail


async def test_new_targets_and_refusals_are_replayed_over_what_was_recorded(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    second = int(api.clock().timestamp()) - 60
    counts = {cell_of(0.5, 0.02): 14, cell_of(2.5, 0.02): 2}
    kept = SloSample(pool=CHAT, second=second, judged=16, within_slo=16, cells=tuple(counts), counts=tuple(counts.values()))
    decisions = tuple(a_decision(f"d{number}", second, predicted, rate) for number, predicted, rate in ((1, 1.0, 0.5), (2, 9.0, 1.0)))
    await api.router.post_report(a_report("r2", slo_samples=(kept,), decisions=decisions))
    await api.app.state.upkeep.roll_up(api.clock())
    slo = (await api.admin.create_plan(CHAT, PlanRequest(kind=PlanKind.SLO, fields={"ttft": "2s"}))).effect
    assert slo.predicted_attainment == pytest.approx(14 / 16)
    assert slo.prediction_basis == "from 16 requests of the past day, served as they were"
    refusing = PlanRequest(kind=PlanKind.EARLY_REJECTION, fields={"mode": "Load", "headroom": 1})
    refused = (await api.admin.create_plan(CHAT, refusing)).effect
    assert refused.predicted_refusals == pytest.approx(1 / 3), "a decision sampled at one half stands for two"
    none = PlanRequest(kind=PlanKind.EARLY_REJECTION, fields={"mode": "Load", "headroom": 2})
    assert (await api.admin.create_plan(CHAT, none)).effect.predicted_refusals == 0


def a_decision(name: str, at: float, predicted_ttft_seconds: float, rate: float) -> DecisionRecord:
    scores = [
        CandidateScore(
            instance=one, hit_tokens=0, miss_tokens=9, pending_tokens=0, predicted_ttft_seconds=predicted_ttft_seconds + more, total=1.0
        )
        for one, more in (("a", 0.0), ("b", 5.0))
    ]
    return DecisionRecord(
        id=name,
        pool=CHAT,
        request=name,
        session=None,
        at=at,
        policy="dualmap",
        table_version=1,
        chosen="a",
        runner_up="b",
        reason=DecisionReason.LEAST_LOADED,
        prompt_tokens=9,
        sample_rate=rate,
        weighing=Weighing(rule="longest-hit", candidates=tuple(scores), considered=2),
    )


async def test_without_a_cluster_planning_answers_unavailable(database_url: str) -> None:
    async with running_api(database_url) as api:
        refused = await problem_of(api.operator.create_scale_plan(CHAT, 3))
        assert (refused.problem.status, refused.problem.type) == (503, "cluster-unavailable")
