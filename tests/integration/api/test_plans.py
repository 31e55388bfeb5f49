"""Plan, apply and undo with a real database and a Kubernetes API of the test's own."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.latency_cells import cell_of
from fairlead.reports.bindings import BindingReason
from fairlead.reports.decisions import CandidateScore, DecisionReason, DecisionRecord, Weighing
from fairlead.reports.moves import MigrationOutcome, MigrationRecord, MoveOutcome
from fairlead.reports.objectives import SloSample
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole, TokenRequest
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.plans import ApplyRequest
from fairlead_testing.fakes.cluster_gateway import FakeClusterGateway
from fairlead_testing.running.api import CHAT, ApiInstance, a_binding, a_report, a_state, an_instance, running_api
from fairlead_testing.waiting import PATIENCE_SECONDS


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


async def test_what_sessions_keep_of_their_caches_is_expected_and_then_told(api: ApiInstance) -> None:
    plan = await api.operator.create_scale_plan(CHAT, 2)
    assert plan.effect.hand_over is not None and plan.effect.hand_over.unknown is not None, "no speed was measured"
    before = await api.viewer.plan_hand_over(plan.id)
    assert (before.expected, before.until) == (plan.effect.hand_over, None)
    applied = await api.operator.apply_plan(plan.id, ApplyRequest(confirm="chat", reason="fewer"))
    assert applied.applied_at is not None
    at = applied.applied_at.timestamp() + 0.001
    moves = {
        name: a_binding(name, "c", id=f"m-{name}", previous=source, reason=BindingReason.DRAIN, based_on=1, at=at)
        for name, source in (("s0", "a"), ("s3", "a"), ("s1", "b"))
    }
    came = {"s0": (70, 30, True), "s3": (0, 90, False), "s1": (0, 1000, False)}
    records = [
        MigrationRecord(
            id=move.id, pool=CHAT, session=name, request="q", source=move.previous or "", target="c", trigger=BindingReason.DRAIN, at=at,
            predicted_source_ttft_seconds=None, predicted_target_ttft_seconds=1.0, benefit_seconds=None,
            tokens_moved=came[name][0], tokens_recomputed=came[name][1], handed_over=came[name][2],
        )
        for name, move in moves.items()
    ]  # fmt: skip
    await api.router.post_report(a_report("r2", bindings=tuple(moves.values()), migrations=tuple(records)))
    found = await api.viewer.plan_hand_over(plan.id)
    assert found.until is not None
    assert (found.sessions_moved, found.sessions_handed_over) == (2, 1), "only those of the instances that the plan removes"
    assert (found.tokens_moved, found.tokens_computed_ahead, found.tokens_lost) == (70, 30, 90)
    assert found.hits_kept == 0, "nothing was hit meanwhile"
    assert (await api.viewer.plan(plan.id)) == applied, "it changes no plan's tag"


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
    assert "maxReplicas" in str(refused.problem.remedy)


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
    assert "maxReplicas" in str((await problem_of(api.operator.create_plan(CHAT, beyond))).problem.remedy)


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


async def test_a_pool_is_deleted_by_name_and_reason_and_created_again(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    before = dict(cluster.spec(CHAT))
    plan = await api.admin.create_plan(CHAT, PlanRequest(kind=PlanKind.DELETE))
    assert (plan.effect.sessions_lost, plan.effect.sessions_moved, plan.effect.heavy) == (12, 0, True)
    assert {one["op"] for one in plan.diff} == {"remove"}
    assert (await problem_of(api.admin.apply_plan(plan.id, ApplyRequest()))).problem.field == "confirm"
    cluster.lose_answers = 1
    sent = ApplyRequest(confirm="chat", reason="it is not used")
    assert (await problem_of(api.admin.apply_plan(plan.id, sent))).retryable
    assert (await api.admin.apply_plan(plan.id, sent)).state == "applied"
    assert (len(cluster.writes), cluster.objects) == (1, {}), "it was deleted once"
    await api.pool_operator.delete_pool(CHAT)
    inverse = await api.admin.undo_plan(plan.id)
    assert (inverse.undo_of, {one["op"] for one in inverse.diff}) == (plan.id, {"add"})
    assert "Sessions that were lost stay lost" in inverse.effect.notes[0]
    await api.admin.apply_plan(inverse.id, ApplyRequest(reason="it is used after all"))
    assert cluster.spec(CHAT) == before
    assert (await api.viewer.plan(plan.id)).state == "undone"
    again = await api.admin.undo_plan(inverse.id)
    assert {one["op"] for one in again.diff} == {"remove"}


async def test_a_pool_that_goes_or_came_back_meanwhile_is_not_created_again(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    plan = await api.admin.create_plan(CHAT, PlanRequest(kind=PlanKind.DELETE))
    cluster.keeps_deleted = True
    await api.admin.apply_plan(plan.id, ApplyRequest(confirm="chat", reason="r"))
    assert (await problem_of(api.admin.undo_plan(plan.id))).problem.type == "still-deleting"
    cluster.add(CHAT, 2, uid="uid-2")
    assert (await problem_of(api.admin.undo_plan(plan.id))).problem.type == "object-changed"


async def test_a_changed_pool_is_not_deleted(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    plan = await api.admin.create_plan(CHAT, PlanRequest(kind=PlanKind.DELETE))
    cluster.edit(CHAT, replicas=5)
    refused = await problem_of(api.admin.apply_plan(plan.id, ApplyRequest(confirm="chat", reason="r")))
    assert refused.problem.type == "object-changed"
    assert cluster.spec(CHAT)["replicas"] == 5
    assert (await api.viewer.plan(plan.id)).state == "superseded"


async def test_a_session_is_moved_at_once_and_back(api: ApiInstance) -> None:
    plan = await api.operator.create_plan(CHAT, PlanRequest(kind=PlanKind.MOVE, session="s0", instance="b"))
    assert (plan.target, plan.effect.sessions_moved, plan.effect.cache_tokens_lost, plan.effect.heavy) == (
        "Session default/chat/s0",
        1,
        100,
        False,
    )
    assert plan.diff == [{"op": "replace", "path": "/instance", "before": "a", "after": "b"}]
    first, again = [await api.operator.apply_plan(plan.id, ApplyRequest(reason="a is hot")) for _ in range(2)]
    assert first == again
    detail = await api.viewer.session(CHAT, "s0")
    assert (detail.session.instance, detail.session.version, detail.session.reason, detail.session.migrations) == ("b", 2, "operator", 1)
    (move,) = (await api.viewer.migrations({"session": "s0"})).items
    assert (move.id, move.source, move.target, move.trigger, move.outcome) == (plan.id, "a", "b", "operator", "underway")
    assert (move.request, move.predicted_target_ttft_seconds) == (None, None)
    outcome = MigrationOutcome(id=plan.id, pool=CHAT, actual_ttft_seconds=0.7, outcome=MoveOutcome.COMPLETED)
    await api.router.post_report(a_report("r2", migration_outcomes=(outcome,)))
    told_anew = replace(outcome, actual_ttft_seconds=30.0, outcome=MoveOutcome.CANCELLED)
    await api.router.post_report(a_report("r3", migration_outcomes=(told_anew,)))  # a router that has started since
    (move,) = (await api.viewer.migrations({"session": "s0"})).items
    assert (move.outcome, move.actual_ttft_seconds) == ("completed", 0.7)
    inverse = await api.operator.undo_plan(plan.id)
    await api.operator.apply_plan(inverse.id, ApplyRequest())
    assert (await api.viewer.session(CHAT, "s0")).session.instance == "a"
    assert (await api.viewer.plan(plan.id)).state == "undone"


async def test_a_session_loses_its_home_and_gets_it_back_while_nobody_bound_it_again(api: ApiInstance) -> None:
    plan = await api.operator.create_plan(CHAT, PlanRequest(kind=PlanKind.UNPIN, session="s1"))
    assert plan.diff == [{"op": "remove", "path": "/instance", "before": "b", "after": None}]
    await api.operator.apply_plan(plan.id, ApplyRequest())
    found = await api.viewer.session(CHAT, "s1")
    assert (found.session.instance, found.history[0].released_at is not None) == (None, True)
    none_left = await problem_of(api.operator.create_plan(CHAT, PlanRequest(kind=PlanKind.UNPIN, session="s1")))
    assert none_left.problem.field == "session"
    inverse = await api.operator.undo_plan(plan.id)
    await api.operator.apply_plan(inverse.id, ApplyRequest())
    found = await api.viewer.session(CHAT, "s1")
    assert (found.session.instance, found.session.migrations) == ("b", 0), "nothing moved"
    second = await api.operator.create_plan(CHAT, PlanRequest(kind=PlanKind.UNPIN, session="s1"))
    await api.operator.apply_plan(second.id, ApplyRequest())
    await api.router.post_report(a_report("r3", bindings=(a_binding("s1", "c", based_on=2),)))
    assert (await problem_of(api.operator.undo_plan(second.id))).problem.type == "object-changed"
    assert (await api.viewer.session(CHAT, "s1")).session.instance == "c"


async def test_a_move_loses_to_one_that_came_before_it(api: ApiInstance) -> None:
    plan = await api.operator.create_plan(CHAT, PlanRequest(kind=PlanKind.MOVE, session="s0", instance="b"))
    await api.router.post_report(a_report("r2", bindings=(a_binding("s0", "c", id="change", previous="a", based_on=1),)))
    assert (await problem_of(api.operator.apply_plan(plan.id, ApplyRequest()))).problem.type == "object-changed"
    assert (await api.viewer.session(CHAT, "s0")).session.instance == "c"


async def test_a_session_goes_only_where_requests_are_taken(api: ApiInstance) -> None:
    for instance, why in (("d", "it is Starting"), ("nope", "no such instance")):
        asked = PlanRequest(kind=PlanKind.MOVE, session="s0", instance=instance)
        refused = (await problem_of(api.operator.create_plan(CHAT, asked))).problem
        assert (refused.status, refused.field) == (422, "instance")
        assert why in str(refused.remedy)
    assert (
        await problem_of(api.operator.create_plan(CHAT, PlanRequest(kind=PlanKind.MOVE, session="s0", instance="a")))
    ).problem.status == 422
    assert (await problem_of(api.operator.create_plan(CHAT, PlanRequest(kind=PlanKind.UNPIN, session="nobody")))).problem.status == 404


async def test_a_plan_that_was_left_open_is_closed_before_the_next_one_writes(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    left = await api.operator.create_scale_plan(CHAT, 6)
    cluster.lose_answers = 1
    assert (await problem_of(api.operator.apply_plan(left.id, ApplyRequest(reason="load")))).retryable
    second = await api.admin.create_scale_plan(CHAT, 7)
    await api.admin.apply_plan(second.id, ApplyRequest())
    found = await api.viewer.plan(left.id)
    assert (found.state, found.applied_by) == ("applied", "test-operator"), "it was made, so it is neither superseded nor expired"
    entries = [(entry.plan, entry.actor, entry.result) for entry in (await api.admin.audit({"action": "plan.applied"})).items]
    assert entries == [
        (second.id, "test-admin", "ok"),
        (left.id, "test-operator", "ok"),
        (left.id, "test-operator", "failed"),
    ]


async def test_two_people_do_not_apply_a_plan_at_the_same_moment(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    plan = await api.operator.create_scale_plan(CHAT, 6)
    cluster.answers_late = asyncio.Event()
    first = asyncio.create_task(api.operator.apply_plan(plan.id, ApplyRequest()))
    await asyncio.wait_for(cluster.asked.wait(), PATIENCE_SECONDS)
    assert (await problem_of(api.admin.apply_plan(plan.id, ApplyRequest()))).problem.type == "being-applied"
    cluster.answers_late.set()
    assert (await first).applied_by == "test-operator"
    assert len(cluster.writes) == 1


async def test_a_deletion_left_open_is_told_by_the_object_that_is_gone(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    plan = await api.admin.create_plan(CHAT, PlanRequest(kind=PlanKind.DELETE))
    cluster.lose_answers = 1
    assert (await problem_of(api.admin.apply_plan(plan.id, ApplyRequest(confirm="chat", reason="done")))).retryable
    assert (await api.viewer.plan(plan.id)).state == "open"
    api.clock.skip(31)
    assert (await api.viewer.plan(plan.id)).state == "applied"


async def test_what_was_begun_and_never_written_expires(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    plan = await api.operator.create_scale_plan(CHAT, 6)
    cluster.lost_writes = 1
    assert (await problem_of(api.operator.apply_plan(plan.id, ApplyRequest()))).retryable
    api.clock.skip(601)
    await api.app.state.upkeep.close_plans(api.clock())
    assert [(one.id, one.state) for one in (await api.viewer.plans()).items] == [(plan.id, "expired")], "read by nobody alone"
    assert (await api.viewer.plan(plan.id)).state == "expired"


async def test_a_conflict_tells_both_differences_whole_and_who_changed_what(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    plan = await api.operator.create_scale_plan(CHAT, 6)
    cluster.edit(CHAT, replicas=5)
    spec = dict(cluster.spec(CHAT))
    told = a_state(*(an_instance(name) for name in "abc"), version=12, generation=2, spec=spec, changed_by="kubectl-edit")
    await api.pool_operator.put_pool_state(CHAT, told)
    cluster.edit(CHAT, slo={"ttft": "4s"})
    cluster.wrote(CHAT, "helm-controller")
    conflict = (await problem_of(api.operator.apply_plan(plan.id, ApplyRequest()))).problem.conflict
    assert conflict is not None
    assert (conflict.plan, conflict.planned) == (plan.id, plan.diff)
    assert [(one.by, [(step["path"], step["before"], step["after"]) for step in one.diff]) for one in conflict.meanwhile] == [
        ("kubectl-edit", [("/spec/replicas", 4, 5)]),
        ("helm-controller", [("/spec/slo/ttft", "5s", "4s")]),
    ]
    applied = await api.operator.create_scale_plan(CHAT, 8)
    await api.operator.apply_plan(applied.id, ApplyRequest())
    cluster.edit(CHAT, replicas=9)
    undone = (await problem_of(api.operator.undo_plan(applied.id))).problem.conflict
    assert undone is not None
    assert [(step["before"], step["after"]) for step in undone.planned] == [(8, 5)]
    assert [(step["before"], step["after"]) for one in undone.meanwhile for step in one.diff] == [(8, 9)]


async def test_a_plan_is_not_over_while_it_is_being_applied(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    api.clock.stop()
    plan = await api.operator.create_scale_plan(CHAT, 6)
    api.clock.skip(599)
    cluster.answers_late = asyncio.Event()
    applying = asyncio.create_task(api.operator.apply_plan(plan.id, ApplyRequest()))
    await asyncio.wait_for(cluster.asked.wait(), PATIENCE_SECONDS)
    api.clock.skip(2)
    assert (await api.viewer.plan(plan.id)).state == "open"
    assert (await problem_of(api.admin.apply_plan(plan.id, ApplyRequest()))).problem.type == "being-applied"
    api.clock.skip(60)
    assert (await api.viewer.plan(plan.id)).state == "expired", "nobody is thought to apply it any more"
    cluster.answers_late.set()
    assert (await applying).state == "applied", "it was at work all the same, and its object says so"
    assert (await api.viewer.plan(plan.id)).state == "applied"
    assert [entry.result for entry in (await api.admin.audit({"action": "plan.applied"})).items] == ["ok"]


async def test_an_apply_left_open_near_its_end_is_told_by_the_object_after_that(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    api.clock.stop()
    plan = await api.operator.create_scale_plan(CHAT, 6)
    api.clock.skip(599)
    cluster.lose_answers = 1
    assert (await problem_of(api.operator.apply_plan(plan.id, ApplyRequest()))).retryable
    api.clock.skip(2)
    assert (await api.viewer.plan(plan.id)).state == "open"
    api.clock.skip(30)
    await api.app.state.upkeep.close_plans(api.clock())
    assert [(one.id, one.state) for one in (await api.viewer.plans()).items] == [(plan.id, "applied")]


async def test_a_begun_plan_is_not_begun_again_when_its_time_is_over(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    api.clock.stop()
    plan = await api.operator.create_scale_plan(CHAT, 6)
    api.clock.skip(599)
    cluster.lost_writes = 1
    assert (await problem_of(api.operator.apply_plan(plan.id, ApplyRequest()))).retryable
    api.clock.skip(2)
    assert (await problem_of(api.operator.apply_plan(plan.id, ApplyRequest()))).problem.type == "being-applied"
    api.clock.skip(30)
    assert (await problem_of(api.operator.apply_plan(plan.id, ApplyRequest()))).problem.type == "plan-expired"
    assert cluster.writes == []


async def test_a_deletion_that_was_refused_is_not_told_of_who_deletes_the_pool_later(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    plan = await api.admin.create_plan(CHAT, PlanRequest(kind=PlanKind.DELETE))
    cluster.forbids = True
    refused = await problem_of(api.admin.apply_plan(plan.id, ApplyRequest(confirm="chat", reason="done")))
    assert refused.problem.status == 403
    cluster.objects.clear()  # by kubectl
    api.clock.skip(31)
    await api.app.state.upkeep.close_plans(api.clock())
    assert (await api.viewer.plan(plan.id)).state == "open"
    assert [entry.result for entry in (await api.admin.audit({"action": "plan.applied"})).items] == ["failed"]


SETS_SLO = {"cron": "0 8 * * *", "duration": "2h", "slo": {"ttft": "9s"}}


async def test_a_schedule_that_sets_the_slo_is_for_admins_at_every_step(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    def asked(action: str, **fields: object) -> PlanRequest:
        return PlanRequest(kind=PlanKind.SCHEDULE, fields={"name": "day", "action": action, **fields})

    create, roles = asked("set", spec=SETS_SLO), {**SETS_SLO, "slo": None, "roles": [{"name": "both", "replicas": 4}]}
    del roles["slo"]
    denied = await problem_of(api.operator.create_plan(CHAT, create))
    assert (denied.problem.status, "admin" in denied.problem.detail) == (403, True)
    plan = await api.admin.create_plan(CHAT, create)
    assert plan.effect.for_admins
    assert (await problem_of(api.operator.apply_plan(plan.id, ApplyRequest()))).problem.status == 403
    await api.admin.apply_plan(plan.id, ApplyRequest())
    assert (await problem_of(api.operator.undo_plan(plan.id))).problem.status == 403
    start = "2027-01-04T08:00:00Z"
    for action, fields in (("pause", {}), ("skip", {"start": start}), ("run", {"start": start}), ("delete", {}), ("set", {"spec": roles})):
        assert (await problem_of(api.operator.create_plan(CHAT, asked(action, **fields)))).problem.status == 403, action
    late = await api.admin.create_plan(CHAT, asked("pause"))
    api.clock.skip(601)
    assert (await problem_of(api.operator.plan_again(late.id))).problem.status == 403
    assert (await api.admin.plan_again(late.id)).effect.for_admins
    (listed,) = [one for one in (await api.viewer.plans()).items if one.id == plan.id]
    assert listed.effect.for_admins
    mine = await api.operator.create_plan(CHAT, PlanRequest(kind=PlanKind.SCHEDULE, fields={"name": "own", "action": "set", "spec": roles}))
    assert (await api.operator.apply_plan(mine.id, ApplyRequest())).state == "applied"
    assert (await api.operator.undo_plan(mine.id)).effect.for_admins is False


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "day", "action": "skip", "start": "9999-12-31T08:00:00Z"},
        {"name": "day", "action": "run", "start": "0001-01-01T00:00:00Z"},
        {"name": "day", "action": "run", "start": "2026-12-01T07:00:00"},
    ],
)
async def test_a_start_that_cannot_be_meant_is_refused(api: ApiInstance, cluster: FakeClusterGateway, fields: dict[str, object]) -> None:
    cluster.edit(CHAT, scaling={"schedules": [{"name": "day", **SETS_SLO}]})
    refused = (await problem_of(api.admin.create_plan(CHAT, PlanRequest(kind=PlanKind.SCHEDULE, fields=fields)))).problem
    assert (refused.status, refused.type) == (422, "invalid-input")
