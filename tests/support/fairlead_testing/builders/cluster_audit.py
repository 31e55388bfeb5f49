"""Audit events as a Kubernetes API server writes them for an InferencePool (k8s.io/apiserver/pkg/apis/audit/v1)."""

import itertools
from typing import Any

_POOL = "/apis/fairlead.dev/v1alpha1/namespaces/default/inferencepools/chat"
_numbers = itertools.count(1)


def an_event(
    user: str,
    version: int,
    generation: int | None,
    *,
    subresource: str = "",
    agent: str = "kubectl/v1.34.1",
    uid: str = "uid-1",
    **changes: Any,
) -> dict[str, Any]:
    """Return the audit event of a patch by `user` after which the object has `version` and `generation`.

    `generation` is None for a patch of the scale subresource, because its answer has no generation.
    """
    about = {"name": "chat", "namespace": "default", "uid": uid, "resourceVersion": str(version)}
    kind = (
        {"kind": "Scale", "apiVersion": "autoscaling/v1"}
        if subresource
        else {"kind": "InferencePool", "apiVersion": "fairlead.dev/v1alpha1"}
    )
    reference = {
        "resource": "inferencepools",
        "namespace": "default",
        "name": "chat",
        "apiGroup": "fairlead.dev",
        "apiVersion": "v1alpha1",
        **({"subresource": subresource} if subresource else {}),
    }
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": f"5c6c3b2e-0000-4000-8000-{next(_numbers):012d}",
        "stage": "ResponseComplete",
        "requestURI": f"{_POOL}{'/' + subresource if subresource else ''}?fieldManager=kubectl-edit&fieldValidation=Strict",
        "verb": "patch",
        "user": {
            "username": user,
            "groups": ["team-a", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=4f"]},
        },
        "sourceIPs": ["192.0.2.7"],
        "userAgent": agent,
        "objectRef": reference,
        "responseStatus": {"metadata": {}, "code": 200},
        "requestObject": {"spec": {"replicas": 3}},
        "responseObject": {**kind, "metadata": about | ({} if generation is None else {"generation": generation}), "spec": {"replicas": 3}},
        "requestReceivedTimestamp": "2026-11-23T07:00:00.123456Z",
        "stageTimestamp": "2026-11-23T07:00:00.130456Z",
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
        **changes,
    }


def an_event_list(*events: dict[str, Any]) -> dict[str, Any]:
    """Return the body that the API server's audit webhook posts: these events as an EventList."""
    return {"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": list(events)}
