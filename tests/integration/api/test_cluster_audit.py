"""Changes made with kubectl get their author from the Kubernetes API's audit log, whichever report comes first."""

from typing import Any

import httpx

from fairlead_api.infra.object_marks import CHANGED_BY, FIELD_MANAGER
from fairlead_client.resources.access import AccessRole, TokenRequest
from fairlead_testing.builders.cluster_audit import an_event, an_event_list
from fairlead_testing.running.api import CHAT, SECRETS, SPEC, ApiInstance, a_state, an_instance
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport


async def posted(api: ApiInstance, secret: str, *events: dict[str, Any]) -> httpx.Response:
    async with httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(api.app)) as http:
        headers = {"authorization": f"Bearer {secret}"}
        return await http.post("/v1/kubernetes/audit", json=an_event_list(*events), headers=headers)


async def seen(api: ApiInstance, replicas: int, version: int, generation: int, by: str, **more: Any) -> None:
    """Let the operator see the pool with another number."""
    spec = {**SPEC, "replicas": replicas}
    await api.pool_operator.put_pool_state(
        CHAT, a_state(an_instance("a"), version=version, generation=generation, changed_by=by, spec=spec, **more)
    )


async def test_a_change_by_kubectl_has_the_user_whom_the_audit_log_names(api: ApiInstance) -> None:
    made = await api.admin.create_token(TokenRequest(name="kube-apiserver", role=AccessRole.SYSTEM_AUDIT))
    assert made.secret is not None
    await seen(api, 2, 100, 1, "kubectl-create")
    await seen(api, 3, 130, 2, "kubectl-edit")
    late = [an_event("operator", 125, 2, verb="update"), an_event("alice", 120, 2)]
    assert (await posted(api, made.secret, *late)).json() == {"changes": 2, "new": 2, "unusable": 0}
    assert (await posted(api, made.secret, *late)).json() == {"changes": 2, "new": 0, "unusable": 0}
    await posted(api, made.secret, an_event("bob", 140, None, subresource="scale"))  # before the operator sees it
    await seen(api, 4, 141, 3, "unknown")
    await seen(api, 5, 150, 4, FIELD_MANAGER, annotations={CHANGED_BY: "grace"})
    await posted(api, made.secret, an_event("system:serviceaccount:fairlead:api", 150, 4))
    assert [one.actor for one in (await api.viewer.revisions(CHAT)).items] == ["grace", "bob", "alice", "kubectl-create"]
    entries = (await api.viewer.audit({"object": str(CHAT)})).items
    assert [(one.action, one.actor, one.source) for one in entries] == [
        ("pool.spec-changed", "grace", FIELD_MANAGER),
        ("pool.spec-changed", "bob", "unknown"),
        ("pool.change-attributed", "alice", "kubectl-edit"),
        ("pool.spec-changed", "kubectl-edit", "kubectl-edit"),
        ("pool.created", "kubectl-create", "kubectl-create"),
    ]
    told = entries[2]
    assert (told.kind, told.before, told.after) == (
        "human",
        {"actor": "kubectl-edit"},
        {
            "revision": 2,
            "actor": "alice",
            "groups": [["team-a", "system:authenticated"]],
            "agents": ["kubectl/v1.34.1"],
            "audit_ids": [late[1]["auditID"]],
        },
    )
    assert (await api.viewer.audit_verification()).intact


async def test_only_its_own_role_may_tell_who_did_it(api: ApiInstance) -> None:
    for role, secret in SECRETS.items():
        assert (await posted(api, secret, an_event("eve", 1, 1))).status_code == 403, role
    made = await api.admin.create_token(TokenRequest(name="kube-apiserver", role=AccessRole.SYSTEM_AUDIT))
    assert made.secret is not None
    async with httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(api.app)) as http:
        headers = {"authorization": f"Bearer {made.secret}"}
        assert (await http.get("/v1/pools", headers=headers)).status_code == 403
        refused = await http.post("/v1/kubernetes/audit", json={"kind": "EventList"}, headers=headers)
        assert (refused.status_code, refused.json()["field"]) == (422, "body")
        assert (await http.post("/v1/kubernetes/audit", content=b"{", headers=headers)).status_code == 400
