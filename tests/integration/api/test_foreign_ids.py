"""Ids of another namespace's plans, moves, decisions, simulations and sessions give no access to them."""

import itertools
from dataclasses import replace
from typing import Any

import httpx
import psycopg
import pytest

from fairlead.reports.bindings import BindingReason
from fairlead.reports.decisions import DecisionReason, DecisionRecord, Weighing
from fairlead.reports.moves import MigrationRecord, ReRouteRecord
from fairlead.tables import PoolKey
from fairlead_client.resources.access import AccessRole, TokenRequest
from fairlead_client.resources.comments import CommentRequest
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_testing.fakes.cluster_gateway import FakeClusterGateway
from fairlead_testing.running.api import ApiInstance, a_binding, a_report, a_state, an_instance, running_api
from fairlead_testing.running.postgres import plain
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport

MINE, THEIRS = PoolKey(namespace="team-a", name="chat"), PoolKey(namespace="secret-ns", name="hidden")
SECRET, HIDDEN = "their-session", "their-request"
"""The name of a session that a stranger may have heard, and a name that only the records have."""
METHODS = ("get", "post", "put", "patch", "delete")
BODIES: tuple[dict[str, Any], ...] = ({}, {"reason": "mine"}, {"session": SECRET}, {"kind": "scale", "replicas": 9})
"""The body of each write; the caller's rights are checked before it."""


async def filled(api: ApiInstance, database_url: str) -> dict[str, str]:
    """Return the ids of one object of each kind in a pool of the other namespace, by path parameter."""
    for pool in (MINE, THEIRS):
        await api.pool_operator.put_pool_state(pool, a_state(an_instance("a"), an_instance("b"), uid=f"uid-{pool.name}"))
    at = api.clock().timestamp()
    cold = replace(a_binding(SECRET, "a", at=at - 5.0, id="cold"), pool=THEIRS)
    moved = replace(cold, id="their-move", instance="b", previous="a", reason=BindingReason.SLO, based_on=1, at=at - 1.0)
    ttfts = {"predicted_source_ttft_seconds": 2.0, "predicted_target_ttft_seconds": 1.0, "benefit_seconds": 1.0}
    about = {"pool": THEIRS, "request": HIDDEN, "source": "a", "target": "b", "trigger": BindingReason.SLO, "at": at, **ttfts}
    move, reroute = MigrationRecord(id="their-move", session=SECRET, **about), ReRouteRecord(id="their-reroute", session=SECRET, **about)  # type: ignore[arg-type]  # one dict of several types
    decision = DecisionRecord(
        id="their-decision",
        pool=THEIRS,
        request=HIDDEN,
        session=SECRET,
        at=at,
        policy="dualmap",
        table_version=1,
        chosen="a",
        runner_up=None,
        reason=DecisionReason.BEST_SCORE,
        prompt_tokens=1,
        weighing=Weighing(rule="r", candidates=(), considered=1),
    )
    await api.router.post_report(a_report("1", bindings=(cold, moved), migrations=(move,), reroutes=(reroute,), decisions=(decision,)))
    plan = await api.admin.create_plan(THEIRS, PlanRequest(kind=PlanKind.SCALE, replicas=5))
    comment = await api.admin.add_comment(THEIRS, CommentRequest(text=HIDDEN, plan=plan.id))
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        row = connection.execute("SELECT max(id) FROM audit_log").fetchone()
    return {
        "plan_id": str(plan.id),
        "comment_id": comment.id,
        "migration_id": "their-move",
        "reroute_id": "their-reroute",
        "decision_id": "their-decision",
        "entry_id": str(row[0] if row else 1),
        "session": SECRET,
        "instance": "a",
        "simulation_id": "1",
        "key_id": "1",
        "token_id": "1",
        "session_id": "1",
    }


def addressed(path: str, pool: PoolKey, ids: dict[str, str]) -> str:
    """Return the path with the ids of the other namespace, below a pool."""
    known = {"namespace": pool.namespace, "name": pool.name, "pool": pool.name} | ids
    if path.startswith("/v1/schedules/"):
        known["name"] = "nightly"
    for name, value in known.items():
        path = path.replace(f"{{{name}}}", value).replace(f"{{{name}:path}}", value)
    return path


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("role", [AccessRole.VIEWER, AccessRole.OPERATOR, AccessRole.ADMIN])
async def test_an_id_of_another_namespace_opens_nothing(database_url: str, role: AccessRole) -> None:
    cluster = FakeClusterGateway()
    cluster.add(MINE, 4)
    cluster.add(THEIRS, 4)
    async with (
        running_api(database_url, overrides={"cluster": cluster}) as api,
        httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(api.app)) as http,
    ):
        ids = await filled(api, database_url)
        made = await api.admin.create_token(TokenRequest(name="mine", role=AccessRole.NONE, namespaces={MINE.namespace: role}))
        headers = {"authorization": f"Bearer {made.secret}"}
        document = (await http.get("/openapi.json", headers=headers)).json()
        operations = [
            (path, method)
            for path, item in document["paths"].items()
            for method in METHODS
            if (method in item and "_id}" in path) or "session}" in path
        ]
        before, wrong = dict(cluster.objects), []
        for (path, method), pool in itertools.product(sorted(set(operations)), (MINE, THEIRS)):
            if not path.startswith("/v1/") or (pool is MINE and "kept-sessions" in path) or method not in document["paths"][path]:
                continue
            for body in BODIES if method != "get" else (None,):
                answer = await http.request(method, addressed(path, pool, ids), headers=headers, json=body)
                if answer.status_code not in {403, 404, 422} or HIDDEN in answer.text:
                    wrong.append((method, addressed(path, pool, ids), body, answer.status_code, answer.text[:200]))
        assert wrong == []
        assert cluster.objects == before
        seen = await api.admin.plan(ids["plan_id"])
        assert (seen.state, (await api.viewer.session(THEIRS, SECRET)).session.instance) == ("open", "b")
