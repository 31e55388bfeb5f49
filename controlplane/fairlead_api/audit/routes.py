"""The audit log, its head, its saved views, and the verification of its chain. Also the webhook of the Kubernetes API's
audit log, which names the authors of changes by kubectl.
"""

import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import Depends, HTTPException, Query, Request, Response

from fairlead.errors import InvalidInput
from fairlead_api.access.guards import Guard
from fairlead_api.audit.cluster_events import read_events
from fairlead_api.audit.store import AuditFilter, PostgresAuditLog, PostgresClusterChanges
from fairlead_api.audit.views import changed, new_view, role_to_write
from fairlead_api.audit.views_store import PostgresAuditViews
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import BoundedStream, answer
from fairlead_api.http.bodies import MalformedBody, described_answer, known_fields
from fairlead_api.http.documents import attachment
from fairlead_api.http.listing import Fetch, From, To, listing
from fairlead_api.http.routes import Routes
from fairlead_api.http.strictness import CLUSTER_AUDIT
from fairlead_api.infra.audit_log import PostgresAudit
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.times import parse_range
from fairlead_client.audit_exports import FORMAT, canonical, seed_of, signed_message
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import (
    AuditEntry,
    AuditFacets,
    AuditHead,
    AuditKind,
    AuditVerification,
    AuditView,
    AuditViewChange,
    AuditViewRequest,
    AuditViews,
    ClusterAuditReceipt,
)

_log = logging.getLogger(__name__)

MOST_BYTES = 32 * 1024 * 1024
"""Maximum number of bytes of an EventList. It is above 10 MiB, the size to which the API server limits its own lists.
"""
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


def cluster_audit_routes(guard: Guard, store: PostgresClusterChanges, clock: Callable[[], datetime]) -> Routes:
    """Return the route of POST /v1/kubernetes/audit, the webhook of the Kubernetes API's audit log."""
    routes = Routes(tags=["history"])
    Auditor = Annotated[Caller, Depends(guard.needs(AccessRole.SYSTEM_AUDIT))]  # noqa: N806 - it is a type
    content = {"schema": _BODY, "examples": {"no events": {"summary": "no events", "value": _EMPTY}}}
    described = {"requestBody": {"required": True, "content": {"application/json": content}}}

    @routes.post(CLUSTER_AUDIT, response_model=ClusterAuditReceipt, openapi_extra=described)
    async def post_cluster_audit(request: Request, caller: Auditor) -> Any:
        """Takes events of the Kubernetes API's audit log (audit.k8s.io/v1), as its webhook backend sends them.

        Events other than writes to pools, and unknown fields, are skipped; an event that is sent again changes nothing.
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


class Signer:
    """Signs exports with an Ed25519 key. Without a key, exports have a hash chain but no signature."""

    def __init__(self, seed: str | None) -> None:
        """Raises InvalidInput if the key is malformed."""
        found = None if seed is None else seed_of(seed)
        if seed is not None and found is None:
            raise InvalidInput("FAIRLEAD_AUDIT_SIGNING_KEY", None, "write 32 random bytes in base64: `openssl rand -base64 32`")
        self._key = None if found is None else Ed25519PrivateKey.from_private_bytes(found)

    @property
    def public_key(self) -> str | None:
        """The public key in hexadecimal."""
        return None if self._key is None else self._key.public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> str | None:
        """Return the signature in hexadecimal."""
        return None if self._key is None else self._key.sign(message).hex()


async def export_lines(
    chunks: AsyncIterator[Sequence[dict[str, Any]]], signer: Signer, start: datetime, end: datetime
) -> AsyncIterator[bytes]:
    """Yield the lines of an export of the entries in [start, end): a head, the entries, and the signature. The first
    item of `chunks` holds only the hash before the first entry; every further item is a list of entries.
    """
    head: dict[str, Any] = {"format": FORMAT, "start": start.isoformat(), "end": end.isoformat(), "key": signer.public_key}
    last, count = None, 0
    async for chunk in chunks:
        if "previous" in chunk[0]:
            head["previous"] = last = chunk[0]["previous"]
            yield _line(head)
            continue
        count, last = count + len(chunk), chunk[-1]["chain"]
        yield b"".join(_line(entry) for entry in chunk)
    signature = signer.sign(signed_message(head, last or ""))
    yield _line({"entries": count, "last": last, "signature": signature})


def _line(document: dict[str, Any]) -> bytes:
    """Encode a document in the same form in which audit entries are hashed. That form keeps numbers of any
    size exact.
    """
    return canonical(document).encode() + b"\n"


KeptId = Annotated[int | None, Query(ge=1, le=2**63 - 1)]
KeptChain = Annotated[str | None, Query(pattern="^[0-9a-f]{64}$")]


def audit_routes(guard: Guard, reader: PostgresAuditLog, verifier: PostgresAudit, signer: Signer, clock: Callable[[], datetime]) -> Routes:
    """Return the routes of the audit log under /v1."""
    routes = Routes(prefix="/v1", tags=["history"])
    viewer = guard.needs(AccessRole.VIEWER)
    Viewer = Annotated[Caller, Depends(viewer)]  # noqa: N806 - it is a type

    async def chosen(
        pool: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        kind: AuditKind | None = None,
        target: Annotated[str | None, Query(alias="object")] = None,
        start: From = None,
        end: To = None,
    ) -> Fetch:
        begun, ended = parse_range(start, end, clock())
        wanted = AuditFilter(pool=pool, actor=actor, action=action, object=target, kind=kind, start=begun, end=ended)
        return lambda span: reader.entries(wanted, span)

    @routes.get("/audit/verification", response_model=AuditVerification)
    async def get_verification(caller: Viewer, head_id: KeptId = None, head_chain: KeptChain = None) -> Any:
        """Verifies the whole hash chain, up to its newest head.

        If the caller gives a head that it kept from `/v1/audit/head`, verifies that head too.
        """
        if (head_id is None) != (head_chain is None):
            raise InvalidInput("head_id" if head_id is None else "head_chain", None, "give head_id and head_chain together, or neither")
        kept = None if head_id is None or head_chain is None else AuditHead(id=head_id, chain=head_chain, at=clock())
        return answer(await verifier.verify(kept))

    @routes.get("/audit/head", response_model=AuditHead)
    async def get_head(caller: Viewer) -> Any:
        """The audit log's head: the position of the newest entry in the chain, and its hash. Keep this head outside the
        database, to prove later that the log is unchanged.
        """
        head = await verifier.head()
        if head is None:
            raise NotFound("audit entry", "1")
        return answer(head)

    @routes.get("/audit/export", response_class=Response, responses=described_answer("application/jsonl"))
    async def get_audit_export(caller: Viewer, start: From = None, end: To = None) -> Response:
        """The entries of a range with their hash chain, signed; by default the last 30 days. Anybody can verify the
        file without this API (`fairlead audit verify FILE`).
        """
        now = clock()
        begun, ended = parse_range(start or "now-30d", end or "now", now)
        first, last = begun or now, ended or now
        lines = export_lines(verifier.exported(first, last), signer, first, last)
        return BoundedStream(lines, media_type="application/jsonl", headers=attachment("audit", "jsonl"))

    seeing = guard.needs(AccessRole.VIEWER, somewhere=True)

    @routes.get("/audit/facets", response_model=AuditFacets)
    async def get_audit_facets(
        caller: Annotated[Caller, Depends(seeing)], pool: str | None = None, start: From = None, end: To = None
    ) -> Any:
        """The number of entries in a range for each action, actor and result, the most frequent first; by default over
        the last 7 days.
        """
        now = clock()
        begun, ended = parse_range(start or "now-7d", end or "now", now)
        return answer(await reader.facets(pool, begun or now, ended or now, caller.sight))

    listing(routes, "/audit", AuditEntry, seeing, chosen, by="-at")

    @routes.get("/audit/{entry_id}", response_model=AuditEntry)
    async def get_audit_entry(entry_id: int, caller: Annotated[Caller, Depends(seeing)]) -> Any:
        """One audit entry."""
        return answer(await reader.entry(entry_id, caller.sight))

    return routes


def audit_view_routes(guard: Guard, stored: PostgresAuditViews, clock: Callable[[], datetime]) -> Routes:
    """Return the routes of /v1/audit-views. Everybody can save private views; operators can share views."""
    routes = Routes(prefix="/v1/audit-views", tags=["history"])
    Viewer = Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER, somewhere=True))]  # noqa: N806 - it is a type

    async def allow(request: Request, caller: Caller, view: AuditView, after: AuditView | None) -> None:
        role = role_to_write(view, after, caller)
        if role is not None:
            await guard.require(request, caller, role, view.pool)

    @routes.get("", response_model=AuditViews)
    async def get_audit_views(caller: Viewer) -> Any:
        """Saved views of the audit log, by name, at most 100: the caller's own views, and views that other people
        share. A shared view is visible to everybody who sees its pool; without a pool, to everybody who sees all pools.
        """
        return answer(AuditViews(views=await stored.views(caller)))

    @routes.post("", status_code=201, dependencies=[Depends(known_fields(AuditViewRequest))])
    async def save_audit_view(body: AuditViewRequest, request: Request, caller: Viewer) -> AuditView:
        """Saves filters of the audit log as a named view. Each person can have at most 50 views, and at most 50 views
        in total can be shared. To share a view, the caller needs the role operator in the namespace of the view's pool,
        or in all namespaces if the view has no pool.
        """
        now = clock()
        made = new_view(f"view-{secrets.token_hex(8)}", body, caller, now)
        await allow(request, caller, made, made)
        return await stored.add(made, caller, now)

    @routes.patch("/{view_id}", dependencies=[Depends(known_fields(AuditViewChange))])
    async def change_audit_view(view_id: str, body: AuditViewChange, request: Request, caller: Viewer) -> AuditView:
        """Renames a saved view, shares it, or stops sharing it. To change another person's view, the caller needs the
        role admin.
        """
        view = await stored.view(view_id, caller)
        after = changed(view, body)
        await allow(request, caller, view, after)
        return await stored.change(view, after, caller, clock())

    @routes.delete("/{view_id}", status_code=204)
    async def delete_audit_view(view_id: str, request: Request, caller: Viewer) -> None:
        """Deletes a saved view. To delete another person's view, the caller needs the role admin."""
        view = await stored.view(view_id, caller)
        await allow(request, caller, view, None)
        await stored.delete(view, caller, clock())

    return routes


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of the audit log, its saved views, and the webhook for the Kubernetes API's own audit log."""
    return Feature(
        routes=(
            audit_view_routes(guard, PostgresAuditViews(infra.control), infra.clock),
            cluster_audit_routes(guard, PostgresClusterChanges(infra.control), infra.clock),
            audit_routes(
                guard, PostgresAuditLog(infra.reads), PostgresAudit(infra.reads), Signer(infra.settings.audit_signing_key), infra.clock
            ),
        )
    )
