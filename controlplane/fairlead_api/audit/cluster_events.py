"""Classifies the actors of audit entries, decides who may read an entry, and turns events of the Kubernetes API's own
audit log (audit.k8s.io/v1) into changes of pools. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from fairlead.errors import InvalidInput
from fairlead_api.infra.spans import Sight
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import OPERATOR_EVENT, AuditKind
from fairlead_process.json_documents import decode_json

SYSTEM_ROLES = (AccessRole.SYSTEM_OPERATOR, AccessRole.SYSTEM_ROUTER)
CLUSTER = "cluster"
"""The role in audit entries about changes that were seen in the cluster."""

MACHINES = ("autoscaler", "controller", "operator")
"""Words in the field managers of programs that change objects automatically, such as `horizontal-pod-autoscaler`,
`argocd-controller` and `kustomize-controller`. Other field managers, such as `kubectl-edit`, are tools of people.
"""


def kind_of(role: str, action: str, source: str) -> AuditKind:
    """Return the kind of actor that caused an audit entry. The index `ix_audit_log_human` implements the same rule in
    SQL.
    """
    itself = role in SYSTEM_ROLES or action.startswith(OPERATOR_EVENT)
    machine = role == CLUSTER and any(word in source for word in MACHINES)
    return AuditKind.SYSTEM if itself or machine else AuditKind.HUMAN


def in_sight(subject: str, sight: Sight) -> bool:
    """Return whether a caller with access to these namespaces may read an entry about this object, such as
    `default/chat`.
    """
    namespace, slash, _ = subject.partition("/")
    return sight is None or (bool(slash) and namespace in sight)


GROUP, RESOURCE = "fairlead.dev", "inferencepools"
DEEPEST_OBJECTS = 500
"""Maximum nesting depth of an EventList, including the written objects. It leaves room for any object of the cluster,
even for a CRD with its schema.
"""
CHANGING = frozenset({"create", "update", "patch"})
OF_SPEC = ("", "scale")
"""Subresources whose writes change a pool's spec: the pool itself (empty) and `scale`. Writes to `status` do not change
the spec.
"""
DONE = "ResponseComplete"


@dataclass(frozen=True, slots=True, kw_only=True)
class _User:
    username: str = ""
    groups: list[str] = field(default_factory=list)


class _Reference(msgspec.Struct, rename="camel"):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    api_group: str = ""
    subresource: str = ""


class _Status(msgspec.Struct):
    code: int = 0


class _Event(msgspec.Struct, rename="camel"):
    """The fields that are read from an audit event of the Kubernetes API (k8s.io/apiserver/pkg/apis/audit/v1); its
    other fields are skipped.
    """

    stage: str
    verb: str
    user: _User
    stage_timestamp: datetime
    audit_id: str = msgspec.field(name="auditID")
    request_uri: str = msgspec.field(name="requestURI", default="")
    user_agent: str = ""
    impersonated_user: _User | None = None
    object_ref: _Reference | None = None
    response_status: _Status | None = None
    response_object: Any = None


class _EventList(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    items: list[msgspec.Raw]


_lists, _events = msgspec.json.Decoder(_EventList), msgspec.json.Decoder(_Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChange:
    """A write to a pool's object that the API server made, and the user who requested the write.

    `generation` is None if the API server's response has no generation, as for a write to `scale`, whose response is a
    Scale. `actor` is the authenticated user, and `acted_as` the user whom `actor` impersonated.
    """

    audit_id: str
    at: datetime
    uid: str
    version: int
    generation: int | None
    actor: str
    acted_as: str | None
    groups: tuple[str, ...]
    agent: str


def read_events(content: bytes) -> tuple[list[ClusterChange], int]:
    """Return the changes of pools in an EventList, and the number of pool events that could not be used. An event
    cannot be used if it contains no object (the policy's level is below RequestResponse) or has another format.

    Raises InvalidInput, msgspec.DecodeError.
    """
    try:
        listed = decode_json(content, _lists, deepest=DEEPEST_OBJECTS)
    except msgspec.ValidationError as error:
        raise InvalidInput("body", None, f"send an EventList of audit.k8s.io/v1: {error}") from None
    if (listed.api_version, listed.kind) != ("audit.k8s.io/v1", "EventList"):
        raise InvalidInput("apiVersion", f"{listed.api_version} {listed.kind}"[:100], "send an EventList of audit.k8s.io/v1")
    changes, unusable = [], 0
    for raw in listed.items:
        try:
            event = _events.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            unusable += 1
            continue
        if _changes_a_pool(event):
            change = _change(event)
            unusable += change is None
            changes += [] if change is None else [change]
    return changes, unusable


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The version and generation that an object had when a change of its spec was first seen."""

    version: int
    generation: int


def changers(changes: Iterable[ClusterChange], since: Seen, until: Seen) -> list[ClusterChange]:
    """Return the changes that turned one revision of an object's spec into the next, in order. The revisions were seen
    at `since` and `until`.

    A write that leaves the object's generation unchanged is left out, because it did not change the spec. A write
    without a generation counts as the next generation.
    """
    found: list[ClusterChange] = []
    generation, version = since.generation, since.version
    for one in sorted(changes, key=lambda change: (change.version, change.at)):
        if not version < one.version <= until.version:
            continue
        version = one.version
        made = generation + 1 if one.generation is None else one.generation
        if generation < made <= until.generation:
            found.append(one)
            generation = made
    return found


def actors(changes: Sequence[ClusterChange]) -> str:
    """Return the users who made the changes, each once, in order."""
    return ", ".join(dict.fromkeys(one.actor if one.acted_as is None else f"{one.actor} as {one.acted_as}" for one in changes))


def _changes_a_pool(event: _Event) -> bool:
    about, answer = event.object_ref, event.response_status
    return (
        about is not None
        and (about.api_group, about.resource) == (GROUP, RESOURCE)
        and about.subresource in OF_SPEC
        and event.verb in CHANGING
        and event.stage == DONE
        and answer is not None
        and 200 <= answer.code < 300
        and "dryRun" not in parse_qs(urlsplit(event.request_uri).query)
    )


def _change(event: _Event) -> ClusterChange | None:
    answer = event.response_object
    about = answer.get("metadata") if isinstance(answer, dict) else None
    if not isinstance(about, dict):
        return None
    uid, version, generation = about.get("uid"), about.get("resourceVersion"), about.get("generation")
    if not (isinstance(uid, str) and isinstance(version, str) and version.isascii() and version.isdigit() and len(version) < 19):
        return None
    generation = generation if isinstance(generation, int) and 0 < generation < 2**63 else None
    people = [event.user, *([] if event.impersonated_user is None else [event.impersonated_user])]
    if any("\0" in text for one in people for text in (uid, event.audit_id, event.user_agent, one.username, *one.groups)):
        return None  # Postgres holds no such text
    return ClusterChange(
        audit_id=event.audit_id,
        at=event.stage_timestamp,
        uid=uid,
        version=int(version),
        generation=generation,
        actor=event.user.username,
        acted_as=None if event.impersonated_user is None else event.impersonated_user.username,
        groups=tuple(event.user.groups),
        agent=event.user_agent,
    )
