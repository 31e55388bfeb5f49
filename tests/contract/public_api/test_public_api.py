"""The public API as the web UI uses it, through the shipped client.

The fake of the web UI's tests and the real API on Postgres answer alike. Answers are compared with their type field by
field, including fields with a default, which the client would not miss.
"""

import csv
import io
from collections.abc import Awaitable, Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, get_origin

import pytest

from fairlead.instances import Role
from fairlead.reports.bindings import BindingReason
from fairlead.reports.decisions import DecisionReason
from fairlead.reports.moves import MoveOutcome
from fairlead.scaling.recommendations import Verdict
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole, Identity, LoginLinkRequest, TokenItem, TokenRequest, WebSession
from fairlead_client.resources.advice import Advice, AdviceReport, Trends
from fairlead_client.resources.audit import AuditEntry, AuditFacets, AuditVerification, AuditViewRequest, AuditViews
from fairlead_client.resources.comments import CommentRequest, Comments
from fairlead_client.resources.costs import CostLine, CostReport
from fairlead_client.resources.decisions import DecisionReasons, ReasonCount, RoutingDecision
from fairlead_client.resources.figures import FiguresByInstance, RangeFigures
from fairlead_client.resources.gateway_keys import GatewayKey, GatewayKeyRequest, GatewayKeyUsage
from fairlead_client.resources.heatmaps import METRICS, Heatmap
from fairlead_client.resources.instances import InstanceDetail, InstanceSummary
from fairlead_client.resources.moves import Migration, MigrationFlow, MigrationMatrix, ReRoute
from fairlead_client.resources.pages import Page
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.plans import ApplyRequest, Plan, PlanState
from fairlead_client.resources.pools import PoolDetail, PoolEventItem, PoolRevision, PoolSummary
from fairlead_client.resources.predictors import Predictor
from fairlead_client.resources.rejections import RejectionGroup, RejectionReport
from fairlead_client.resources.rings import Ring, RingInstance
from fairlead_client.resources.rollouts import Rollout
from fairlead_client.resources.scaling import ScalingDecisionItem
from fairlead_client.resources.search import SearchReport
from fairlead_client.resources.series import Annotations, Series
from fairlead_client.resources.sessions import SessionDetail, SessionSummary
from fairlead_client.resources.slo import SloAttainment, SloBurn, SloShare, SloTaskBurn, SloVersion, SloWhatIf
from fairlead_client.resources.webhooks import Webhook, WebhookNotice, WebhookRequest
from fairlead_testing.builders.wire_examples import differences
from fairlead_testing.fakes.public_api.paths import public_parameters, public_paths, template
from fairlead_testing.running.public_doors import Door

RANGE = {"from": "now-1h", "to": "now"}
Read = Callable[[Door], Awaitable[object]]


async def first_instance(door: Door) -> str:
    return (await door.viewer.instances(door.pool)).items[0].id


async def instance(door: Door) -> object:
    return await door.viewer.instance(door.pool, await first_instance(door))


async def session(door: Door) -> object:
    found = (await door.viewer.sessions({"pool": str(door.pool)})).items[0]
    return await door.viewer.session(door.pool, found.session)


async def migration(door: Door) -> object:
    return await door.viewer.migration((await door.viewer.migrations(RANGE)).items[0].id)


async def reroute(door: Door) -> object:
    return await door.viewer.reroute((await door.viewer.reroutes(RANGE)).items[0].id)


async def decision(door: Door) -> object:
    return await door.viewer.decision((await door.viewer.decisions(RANGE)).items[0].id)


async def scaling_decision(door: Door) -> object:
    return await door.viewer.scaling_decision((await door.viewer.scaling_decisions(RANGE)).items[0].id)


async def audit_entry(door: Door) -> object:
    return await door.viewer.audit_entry((await door.viewer.audit()).items[0].id)


async def gateway_key_usage(door: Door) -> object:
    made = await door.operator.create_gateway_key(GatewayKeyRequest(name="team"))
    return await door.viewer.gateway_key_usage(made.id)


async def audit_views(door: Door) -> object:
    await door.operator.save_audit_view(AuditViewRequest(name="changes of a week", action="plan.*", start="now-7d", shared=True))
    return await door.viewer.audit_views()


async def comments(door: Door) -> object:
    await door.viewer.add_comment(door.pool, CommentRequest(text="a load test", start="now-1h", end="now-30m"))
    return await door.viewer.comments({"pool": str(door.pool)})


async def webhooks(door: Door) -> object:
    await door.admin.create_webhook(WebhookRequest(name="team", url="https://hooks.example.com/x"))
    return await door.viewer.webhooks()


async def notice(door: Door) -> object:
    made = await door.admin.create_webhook(WebhookRequest(name="team", url="https://hooks.example.com/x"))
    return await door.viewer.notice((await door.admin.test_webhook(made.id)).id)


READS: dict[str, tuple[Read, Any]] = {
    "whoami": (lambda door: door.viewer.whoami(), Identity),
    "pools": (lambda door: door.viewer.pools(limit=10), Page[PoolSummary]),
    "pool": (lambda door: door.viewer.pool(door.pool), PoolDetail),
    "instances": (lambda door: door.viewer.instances(door.pool), Page[InstanceSummary]),
    "instance": (instance, InstanceDetail),
    "revisions": (lambda door: door.viewer.revisions(door.pool), Page[PoolRevision]),
    "rollout": (lambda door: door.viewer.rollout(door.pool), Rollout),
    "predictor": (lambda door: door.viewer.predictor(door.pool), Predictor),
    "events": (lambda door: door.viewer.events(door.pool), Page[PoolEventItem]),
    "fleet series": (lambda door: door.viewer.series(["requests", "ttft_p95"]), Series),
    "series": (lambda door: door.viewer.series(["attainment", "instances_serving"], door.pool), Series),
    "figures": (lambda door: door.viewer.figures(door.pool), RangeFigures),
    "figures by instance": (lambda door: door.viewer.figures_by_instance(door.pool), FiguresByInstance),
    "annotations": (lambda door: door.viewer.annotations(door.pool), Annotations),
    "slo": (lambda door: door.viewer.slo_versions(door.pool), Page[SloVersion]),
    "slo attainment": (lambda door: door.viewer.slo_attainment(door.pool), SloAttainment),
    "slo burn": (lambda door: door.viewer.slo_burn(door.pool), SloBurn),
    "slo task burn": (lambda door: door.viewer.slo_task_burn(door.pool), SloTaskBurn),
    "slo what-if": (lambda door: door.viewer.slo_what_if(door.pool, ttft="2s"), SloWhatIf),
    "sessions": (lambda door: door.viewer.sessions(), Page[SessionSummary]),
    "session": (session, SessionDetail),
    "migrations": (lambda door: door.viewer.migrations(RANGE), Page[Migration]),
    "migration": (migration, Migration),
    "migration matrix": (lambda door: door.viewer.migration_matrix(RANGE), MigrationMatrix),
    "reroutes": (lambda door: door.viewer.reroutes(RANGE), Page[ReRoute]),
    "reroute": (reroute, ReRoute),
    "reroute matrix": (lambda door: door.viewer.reroute_matrix(RANGE), MigrationMatrix),
    "decisions": (lambda door: door.viewer.decisions(RANGE), Page[RoutingDecision]),
    "decision": (decision, RoutingDecision),
    "decision reasons": (lambda door: door.viewer.decision_reasons(door.pool), DecisionReasons),
    "scaling decisions": (lambda door: door.viewer.scaling_decisions(RANGE), Page[ScalingDecisionItem]),
    "scaling decision": (scaling_decision, ScalingDecisionItem),
    "rejections": (lambda door: door.viewer.rejections(RANGE), RejectionReport),
    "cost": (lambda door: door.viewer.cost({"by": "pool", **RANGE}), CostReport),
    "search": (lambda door: door.viewer.search("chat"), SearchReport),
    "advice": (lambda door: door.viewer.advice(), AdviceReport),
    "advice of a pool": (lambda door: door.viewer.advice(door.pool), AdviceReport),
    "trends": (lambda door: door.viewer.trends(), Trends),
    "audit": (lambda door: door.viewer.audit(), Page[AuditEntry]),
    "audit facets": (lambda door: door.viewer.audit_facets(RANGE), AuditFacets),
    "audit views": (audit_views, AuditViews),
    "comments": (comments, Comments),
    "audit entry": (audit_entry, AuditEntry),
    "audit verification": (lambda door: door.viewer.audit_verification(), AuditVerification),
    "gateway keys": (lambda door: door.viewer.gateway_keys(), Page[GatewayKey]),
    "gateway key usage": (gateway_key_usage, GatewayKeyUsage),
    "webhooks": (webhooks, Page[Webhook]),
    "notices": (lambda door: door.viewer.notices(), Page[WebhookNotice]),
    "notice": (notice, WebhookNotice),
    "tokens": (lambda door: door.admin.tokens(), Page[TokenItem]),
}


CSV: dict[str, type[Any]] = {
    "/v1/pools": PoolSummary,
    "/v1/pools/default/chat/instances": InstanceSummary,
    "/v1/sessions": SessionSummary,
    "/v1/migrations": Migration,
    "/v1/reroutes": ReRoute,
    "/v1/decisions": RoutingDecision,
    "/v1/pools/default/chat/decision-reasons": ReasonCount,
    "/v1/scaling-decisions": ScalingDecisionItem,
    "/v1/rejections": RejectionGroup,
    "/v1/migrations/matrix": MigrationFlow,
    "/v1/pools/default/chat/ring": RingInstance,
    "/v1/pools/default/chat/slo/attainment": SloShare,
    "/v1/advice": Advice,
    "/v1/audit": AuditEntry,
    "/v1/cost": CostLine,
}


async def test_every_answer_has_exactly_the_fields_of_its_type(door: Door) -> None:
    found = {}
    for name, (read, kind) in READS.items():
        await read(door)
        found[name] = differences(door.heard.document, kind)
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


async def test_a_heatmap_has_a_row_per_instance_and_a_cell_per_column(door: Door) -> None:
    names = {one.id for one in (await door.viewer.instances(door.pool)).items}
    for metric, unit in METRICS.items():
        found = await door.viewer.heatmap(door.pool, metric=metric, start="now-5m", columns=30)
        assert differences(door.heard.document, Heatmap) == []
        assert (found.metric, found.unit) == (metric, unit)
        assert {row.instance for row in found.rows} == names
        assert all(len(row.values) == found.columns <= 30 for row in found.rows)


async def test_a_ring_tells_shares_and_what_a_change_would_move(door: Door) -> None:
    ring = await door.viewer.ring(door.pool)
    assert differences(door.heard.document, Ring) == []
    assert sum(one.key_share for one in ring.instances) == pytest.approx(1.0)
    name = next(one.id for one in ring.instances if one.anchors)
    asked = (await door.viewer.ring(door.pool, add=1, remove=[name], anchors=80)).change
    assert differences(door.heard.document, Ring) == []
    assert asked is not None
    assert asked.moved_share == pytest.approx(sum(move.share for move in asked.moves))
    with pytest.raises(ApiProblem) as caught:
        await door.viewer.ring(door.pool, remove=["nobody"])
    assert (caught.value.problem.status, caught.value.problem.field) == (422, "remove")


async def test_no_json_path_of_the_api_is_left_without_an_answer(door: Door) -> None:
    """Paths without names in them are found, so that new ones are tested as soon as the API has them.

    The path of an identity provider is tested in tests/e2e/web/test_identity_provider.py; without a provider it is a
    404.
    """
    for path, kind in public_paths().items():
        if "{" in path or path == "/v1/login/oidc" or not is_dataclass(get_origin(kind) or kind):
            continue
        answered = await _get(door, path)
        assert differences(answered, kind) == [], path


async def _get(door: Door, path: str) -> Any:
    chunks = [chunk async for chunk in door.admin.export(path)]
    assert chunks
    return door.heard.document


async def test_a_list_as_csv_has_a_column_per_field(door: Door) -> None:
    for path, item in CSV.items():
        asked = template(f"{path.replace('/default/chat/', '/{namespace}/{name}/')}.csv")
        span = RANGE if "from" in public_parameters()[asked, "GET"] else {}
        text = b"".join([chunk async for chunk in door.viewer.export(f"{path}.csv", span)]).decode()
        rows = list(csv.reader(io.StringIO(text)))
        assert rows[0] == [field.name for field in fields(item)], path
        assert len(rows) > 1, path


async def test_filters_leave_only_what_they_name(door: Door) -> None:
    moved = (await door.viewer.migrations(RANGE)).items[0]
    for name in ("pool", "source", "target", "trigger", "outcome", "session"):
        wanted = getattr(moved, name)
        items = (await door.viewer.migrations({**RANGE, name: str(wanted)})).items
        assert items
        assert all(getattr(item, name) == wanted for item in items)
    decided = (await door.viewer.decisions(RANGE)).items[0]
    for name in ("pool", "session", "reason", "priority_class"):
        same = (await door.viewer.decisions({**RANGE, name: str(getattr(decided, name))})).items
        assert all(getattr(one, name) == getattr(decided, name) for one in same)
    assert not (await door.viewer.decisions({**RANGE, "priority_class": "nobody's"})).items
    refused = (await door.viewer.rejections(RANGE)).groups[0]
    for name in ("pool", "priority_class"):
        groups = (await door.viewer.rejections({**RANGE, name: str(getattr(refused, name))})).groups
        assert groups
        assert all(getattr(one, name) == getattr(refused, name) for one in groups)
    scaled = (await door.viewer.scaling_decisions(RANGE)).items[0]
    for name in ("pool", "role", "controller", "verdict"):
        alike = (await door.viewer.scaling_decisions({**RANGE, name: str(getattr(scaled, name))})).items
        assert alike
        assert all(getattr(one, name) == getattr(scaled, name) for one in alike)
    assert len((await door.viewer.scaling_decisions({**RANGE, "verdict": str(scaled.verdict)})).items) < len(
        (await door.viewer.scaling_decisions(RANGE)).items
    )
    chosen = (await door.viewer.decisions({**RANGE, "instance": decided.chosen})).items
    assert chosen
    assert {one.chosen for one in chosen} == {decided.chosen}


async def test_a_word_no_filter_knows_is_refused_with_the_words_it_knows(door: Door) -> None:
    wanted: dict[str, tuple[str, type[StrEnum]]] = {
        "migrations": ("outcome", MoveOutcome),
        "reroutes": ("trigger", BindingReason),
        "decisions": ("reason", DecisionReason),
        "scaling-decisions": ("verdict", Verdict),
    }
    for listed, (name, words) in wanted.items():
        with pytest.raises(ApiProblem) as caught:
            [chunk async for chunk in door.viewer.export(f"/v1/{listed}.json", {name: "mood"})]
        problem = caught.value.problem
        assert (problem.status, problem.field, problem.value) == (422, name, "mood")
        assert all(repr(word.value) in (problem.remedy or "") for word in words)


async def test_a_parameter_that_no_path_takes_is_refused_with_the_near_one(door: Door) -> None:
    with pytest.raises(ApiProblem) as caught:
        await door.viewer.decisions({**RANGE, "sesion": "s1"})
    problem = caught.value.problem
    assert (problem.status, problem.field, problem.value) == (422, "sesion", "s1")
    assert (problem.remedy or "").startswith("write session; known parameters: ")


async def test_a_list_goes_on_where_its_page_ended(door: Door) -> None:
    whole = (await door.viewer.decisions(RANGE)).items[:2]
    first = await door.viewer.decisions({**RANGE, "limit": 1})
    second = await door.viewer.decisions({**RANGE, "limit": 1, "cursor": first.next_cursor})
    assert [item.id for item in (*first.items, *second.items)] == [item.id for item in whole]


async def test_what_does_not_exist_is_a_404(door: Door) -> None:
    nothing: list[Read] = [
        lambda one: one.viewer.instance(one.pool, "nobody"),
        lambda one: one.viewer.session(one.pool, "nobody"),
        lambda one: one.viewer.migration("nobody"),
        lambda one: one.viewer.reroute("nobody"),
        lambda one: one.viewer.decision("nobody"),
        lambda one: one.viewer.scaling_decision("nobody"),
        lambda one: one.viewer.audit_entry(10**9),
        lambda one: one.viewer.plan("nobody"),
        lambda one: one.admin.revoke_token("nobody"),
    ]
    for read in nothing:
        with pytest.raises(ApiProblem) as caught:
            await read(door)
        assert caught.value.problem.status == 404


async def test_strangers_and_lower_roles_are_refused(door: Door) -> None:
    for api, status in ((door.base, 401), (door.base.with_token("flt_unknown"), 401), (door.viewer, 403)):
        with pytest.raises(ApiProblem) as caught:
            await api.create_scale_plan(door.pool, 1)
        assert caught.value.problem.status == status
    with pytest.raises(ApiProblem) as caught:
        await door.operator.tokens()
    assert caught.value.problem.status == 403


async def test_a_login_link_works_once_and_its_session_until_logout(door: Door) -> None:
    link = await door.admin.create_login_link(LoginLinkRequest(role=AccessRole.OPERATOR, subject="ada"))
    session = await door.base.login(link.token)
    assert differences(door.heard.document, WebSession) == []
    assert session.identity.role is AccessRole.OPERATOR
    person = door.base.with_token(session.token)
    assert (await person.whoami()).role is AccessRole.OPERATOR
    with pytest.raises(ApiProblem):
        await door.base.login(link.token)
    await person.logout()
    with pytest.raises(ApiProblem) as caught:
        await person.whoami()
    assert caught.value.problem.status == 401


async def test_a_gateway_key_shows_its_secret_once_and_stays_revoked(door: Door) -> None:
    made = await door.operator.create_gateway_key(GatewayKeyRequest(name="team", pools=("default/chat",), days=1))
    assert made.secret is not None
    await door.operator.revoke_gateway_key(made.id)
    (listed,) = [key for key in (await door.viewer.gateway_keys()).items if key.id == made.id]
    assert (listed.name, listed.pools, listed.secret, listed.revoked_at is not None) == ("team", ("default/chat",), None, True)


async def test_a_webhook_shows_its_secret_once_and_its_address_never(door: Door) -> None:
    made = await door.admin.create_webhook(WebhookRequest(name="team", url="https://hooks.example.com/private"))
    assert made.secret is not None and made.secret.startswith("whsec_")
    (listed,) = [one for one in (await door.viewer.webhooks()).items if one.id == made.id]
    assert (listed.origin, listed.secret) == ("https://hooks.example.com", None)
    sent = await door.admin.test_webhook(made.id)
    assert [one.id for one in (await door.viewer.notices({"webhook": made.id})).items] == [sent.id]
    await door.admin.delete_webhook(made.id)
    assert made.id not in {one.id for one in (await door.viewer.webhooks()).items}
    for call in (door.admin.test_webhook(made.id), door.admin.delete_webhook(made.id), door.viewer.notice(sent.id)):
        with pytest.raises(ApiProblem) as caught:
            await call
        assert caught.value.problem.status == 404


async def test_a_token_shows_its_secret_once(door: Door) -> None:
    made = await door.admin.create_token(TokenRequest(name="grace", role=AccessRole.VIEWER))
    assert differences(door.heard.document, TokenItem) == []
    assert made.secret
    assert all(item.secret is None for item in (await door.admin.tokens()).items)


async def test_a_plan_is_made_applied_and_undone(door: Door) -> None:
    plan = await door.operator.create_scale_plan(door.pool, door.replicas + 1)
    assert differences(door.heard.document, Plan) == []
    assert plan.state is PlanState.OPEN
    assert (await door.viewer.plan(plan.id)).state is PlanState.OPEN
    with pytest.raises(ApiProblem) as caught:
        await door.operator.undo_plan(plan.id)
    assert caught.value.problem.status == 409
    applied = await door.operator.apply_plan(plan.id, ApplyRequest())
    assert applied.state is PlanState.APPLIED
    assert applied.applied_by
    inverse = await door.operator.undo_plan(plan.id)
    assert (inverse.diff[0]["before"], inverse.diff[0]["after"]) == (door.replicas + 1, door.replicas)


async def test_replicas_beyond_the_most_are_refused_with_the_field(door: Door) -> None:
    with pytest.raises(ApiProblem) as caught:
        await door.operator.create_scale_plan(door.pool, 65)
    assert (caught.value.problem.status, caught.value.problem.field) == (422, "spec.replicas")


CHANGES: dict[PlanKind, dict[str, Any]] = {
    PlanKind.POLICY: {"policy": "round-robin", "parameters": {}},
    PlanKind.SLO: {"ttft": "3s", "percentile": 95},
    PlanKind.EARLY_REJECTION: {"mode": "Predicted", "headroom": 1.5},
    PlanKind.RING: {"anchorsPerInstance": 64},
    PlanKind.SCALING: {"targetLoad": 0.7, "zero": {"idleAfter": "20m"}},
    PlanKind.RATIO: {"method": "Replace", "cooldown": "5m"},
}


async def test_a_part_of_the_spec_is_planned_by_admins_applied_and_undone(door: Door) -> None:
    for kind, fields_ in CHANGES.items():
        request = PlanRequest(kind=kind, fields=fields_)
        with pytest.raises(ApiProblem) as caught:
            await door.operator.create_plan(door.pool, request)
        assert caught.value.problem.status == 403
        plan = await door.admin.create_plan(door.pool, request)
        assert differences(door.heard.document, Plan) == []
        changed = {part for change in plan.diff for part in change["path"].split("/")}
        assert changed >= {name for name in fields_ if name != "parameters"}, kind
        with pytest.raises(ApiProblem) as caught:
            await door.operator.apply_plan(plan.id, ApplyRequest())
        assert caught.value.problem.status == 403
        assert (await door.admin.apply_plan(plan.id, ApplyRequest(confirm=door.pool.name, reason="try"))).state is PlanState.APPLIED
        inverse = await door.admin.undo_plan(plan.id)
        assert [(one["path"], one["after"]) for one in inverse.diff] == [(one["path"], one["before"]) for one in plan.diff]


async def test_an_instance_is_cordoned_and_taken_back_by_operators(door: Door) -> None:
    name = (await door.viewer.instances(door.pool)).items[0].id
    plan = await door.operator.create_plan(door.pool, PlanRequest(kind=PlanKind.CORDON, instance=name))
    assert differences(door.heard.document, Plan) == []
    assert (plan.target, plan.owner) == (f"Pod {door.pool.namespace}/{name}", None)
    assert [one["after"] for one in plan.diff] == ["true"]
    assert (await door.operator.apply_plan(plan.id, ApplyRequest(confirm=door.pool.name, reason="try"))).state is PlanState.APPLIED
    inverse = await door.operator.undo_plan(plan.id)
    assert [(one["before"], one["after"]) for one in inverse.diff] == [("true", None)]
    with pytest.raises(ApiProblem) as caught:
        await door.operator.create_plan(door.pool, PlanRequest(kind=PlanKind.CORDON, instance="nobody"))
    assert caught.value.problem.status == 404


async def test_an_instance_is_drained_by_operators_and_the_drain_taken_back(door: Door) -> None:
    name = (await door.viewer.instances(door.pool)).items[0].id
    plan = await door.operator.create_plan(door.pool, PlanRequest(kind=PlanKind.DRAIN, instance=name))
    assert [one["after"] for one in plan.diff] == ["true"]
    assert "until its successor serves" in plan.effect.notes[0]
    assert (await door.operator.apply_plan(plan.id, ApplyRequest(confirm=door.pool.name, reason="try"))).state is PlanState.APPLIED
    inverse = await door.operator.undo_plan(plan.id)
    assert [(one["before"], one["after"]) for one in inverse.diff] == [("true", None)]


async def test_a_rollback_is_planned_applied_and_undone(door: Door) -> None:
    [newest, former] = (await door.viewer.rollout(door.pool)).revisions
    assert (newest.in_force, newest.diff, former.in_force) == (True, [], False)
    plan = await door.operator.create_plan(door.pool, PlanRequest(kind=PlanKind.ROLLBACK, revision=former.number))
    assert differences(door.heard.document, Plan) == []
    assert plan.diff == former.diff
    assert plan.effect.instances_removed > 0
    assert (await door.operator.apply_plan(plan.id, ApplyRequest(confirm=door.pool.name, reason="worse"))).state is PlanState.APPLIED
    inverse = await door.operator.undo_plan(plan.id)
    assert [(one["path"], one["after"]) for one in inverse.diff] == [(one["path"], one["before"]) for one in plan.diff]


async def test_a_plan_of_another_shape_or_value_is_refused_with_its_field(door: Door) -> None:
    for request, field in (
        (PlanRequest(kind=PlanKind.SLO, fields={"ttft": "soon"}), "spec.slo.ttft"),
        (PlanRequest(kind=PlanKind.SLO, fields={"mode": "Load"}), "spec.slo.mode"),
        (PlanRequest(kind=PlanKind.SLO), "fields"),
        (PlanRequest(kind=PlanKind.SLO, replicas=3, fields={"ttft": "3s"}), "replicas"),
        (PlanRequest(kind=PlanKind.SCALE, replicas=3, fields={"ttft": "3s"}), "fields"),
        (PlanRequest(kind=PlanKind.SCALE), "replicas"),
        (PlanRequest(kind=PlanKind.SCALE, replicas=3, role=Role.PREFILL), "role"),
        (PlanRequest(kind=PlanKind.CORDON), "instance"),
        (PlanRequest(kind=PlanKind.DRAIN), "instance"),
        (PlanRequest(kind=PlanKind.ROLLBACK, revision=99), "revision"),
        (PlanRequest(kind=PlanKind.ROLLBACK, role=Role.PREFILL), "role"),
        (PlanRequest(kind=PlanKind.SCALE, replicas=3, revision=1), "revision"),
        (PlanRequest(kind=PlanKind.ROLLOUT, fields={"maxSurge": 0, "maxUnavailable": 0}), "spec.rollout.maxSurge"),
        (PlanRequest(kind=PlanKind.UNCORDON, instance="a", replicas=1), "replicas"),
        (PlanRequest(kind=PlanKind.POLICY, fields={"policy": "nope"}), "spec.routing.policy"),
        (PlanRequest(kind=PlanKind.POLICY, fields={"policy": "ear", "parameters": {"x": 1}}), "spec.routing.parameters.x"),
        (PlanRequest(kind=PlanKind.RING, fields={"anchorsPerInstance": 0}), "spec.routing.anchorsPerInstance"),
    ):
        with pytest.raises(ApiProblem) as caught:
            await door.admin.create_plan(door.pool, request)
        assert (caught.value.problem.status, caught.value.problem.field) == (422, field)


async def test_the_live_stream_opens(door: Door) -> None:
    stream = door.viewer.live_bytes({"topics": "pools"})
    assert await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]  # an async generator behind its protocol
