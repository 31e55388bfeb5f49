"""The Kubernetes API's audit log: its webhook backend sends events here, so that kubectl's changes have an author."""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Protocol

import msgspec
from fastapi import APIRouter, Depends, HTTPException, Request

from fairlead_api.access.guards import Guard
from fairlead_api.audit.cluster_events import ClusterChange, read_events
from fairlead_api.http.answers import answer
from fairlead_api.http.bodies import MalformedBody
from fairlead_api.http.strict_bodies import CLUSTER_AUDIT
from fairlead_api.infra.callers import Caller
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import ClusterAuditReceipt

_log = logging.getLogger(__name__)

MOST_BYTES = 32 * 1024 * 1024
"""Of a list; the API server's own limit for one that it truncates is 10 MiB."""
_BODY = {
    "type": "object",
    "required": ["apiVersion", "kind", "items"],
    "properties": {
        "apiVersion": {"const": "audit.k8s.io/v1"},
        "kind": {"const": "EventList"},
        "items": {"type": "array", "items": {"type": "object"}},
    },
}
_EMPTY = {"apiVersion": "audit.k8s.io/v1", "kind": "EventList", "items": []}


class ClusterChangeStore(Protocol):
    """Keeps who changed what in the cluster."""

    async def add(self, changes: Sequence[ClusterChange], now: datetime) -> int:
        """Stores changes not stored before, and names their users where a revision has only a field manager; the number
        stored.
        """


def cluster_audit_routes(guard: Guard, store: ClusterChangeStore, clock: Callable[[], datetime]) -> APIRouter:
    """POST /v1/kubernetes/audit."""
    routes = APIRouter(tags=["history"])
    Auditor = Annotated[Caller, Depends(guard.needs(AccessRole.SYSTEM_AUDIT))]  # noqa: N806 - it is a type
    content = {"schema": _BODY, "examples": {"no events": {"summary": "no events", "value": _EMPTY}}}
    described = {"requestBody": {"required": True, "content": {"application/json": content}}}

    @routes.post(CLUSTER_AUDIT, response_model=ClusterAuditReceipt, openapi_extra=described)
    async def post_cluster_audit(request: Request, caller: Auditor) -> Any:
        """Events of the Kubernetes API's audit log (audit.k8s.io/v1), as its webhook backend sends them.

        Other events than writes to pools are skipped, and so is what is not known of an event; sending one again
        changes nothing.
        """
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > MOST_BYTES:
                raise HTTPException(413, f"the body is larger than {MOST_BYTES // 1024 // 1024} MiB; set a smaller batch size")
        try:
            changes, unusable = read_events(bytes(content))
        except msgspec.DecodeError as error:
            raise MalformedBody(str(error)) from None
        if unusable:
            _log.warning(
                "audit events of pools without their object; set the policy's level to RequestResponse", extra={"events": unusable}
            )
        return answer(ClusterAuditReceipt(changes=len(changes), new=await store.add(changes, clock()), unusable=unusable))

    return routes
