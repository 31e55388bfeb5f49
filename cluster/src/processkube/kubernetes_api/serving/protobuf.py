"""Decodes the few protobuf bodies that kubectl's typed commands send.

They are namespaces, config maps, roles, access reviews and similar objects. Protobuf does not name fields, so each
message is described by a table from field number to name and type. For a kind without a table the response is 415, as
the real server responds to protobuf for custom resources.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from processkube.kubernetes_api.objects.errors import UnsupportedMediaType
from processkube.kubernetes_api.objects.objects import Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"

Field = tuple[str, str]
"""A field of a message, as (name, type). The type is string, bytes, int, bool, time, or the name of another message.

`*` marks a repeated field, `map` a map from string to string, and `bytemap` a map from string to bytes.
"""

_MESSAGES: dict[str, dict[int, Field]] = {
    "ObjectMeta": {
        1: ("name", "string"),
        2: ("generateName", "string"),
        3: ("namespace", "string"),
        11: ("labels", "map"),
        12: ("annotations", "map"),
        14: ("finalizers", "string*"),
    },
    "v1/Namespace": {1: ("metadata", "ObjectMeta"), 2: ("spec", "NamespaceSpec")},
    "NamespaceSpec": {1: ("finalizers", "string*")},
    "v1/ConfigMap": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "map"),
        3: ("binaryData", "bytemap"),
        4: ("immutable", "bool"),
    },
    "v1/Secret": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "bytemap"),
        3: ("type", "string"),
        4: ("stringData", "map"),
        5: ("immutable", "bool"),
    },
    "v1/ServiceAccount": {1: ("metadata", "ObjectMeta"), 4: ("automountServiceAccountToken", "bool")},
    "authorization.k8s.io/v1/SelfSubjectAccessReview": {1: ("metadata", "ObjectMeta"), 2: ("spec", "AccessReviewSpec")},
    "authorization.k8s.io/v1/SelfSubjectRulesReview": {1: ("metadata", "ObjectMeta"), 2: ("spec", "RulesReviewSpec")},
    "authentication.k8s.io/v1/SelfSubjectReview": {1: ("metadata", "ObjectMeta")},
    "authentication.k8s.io/v1/TokenRequest": {1: ("metadata", "ObjectMeta"), 2: ("spec", "TokenRequestSpec")},
    "TokenRequestSpec": {
        1: ("audiences", "string*"),
        3: ("boundObjectRef", "BoundObjectReference"),
        4: ("expirationSeconds", "int"),
    },
    "BoundObjectReference": {1: ("kind", "string"), 2: ("apiVersion", "string"), 3: ("name", "string"), 4: ("uid", "string")},
    "rbac.authorization.k8s.io/v1/Role": {1: ("metadata", "ObjectMeta"), 2: ("rules", "PolicyRule*")},
    "rbac.authorization.k8s.io/v1/ClusterRole": {
        1: ("metadata", "ObjectMeta"),
        2: ("rules", "PolicyRule*"),
        3: ("aggregationRule", "AggregationRule"),
    },
    "AggregationRule": {1: ("clusterRoleSelectors", "LabelSelector*")},
    "LabelSelector": {1: ("matchLabels", "map"), 2: ("matchExpressions", "LabelSelectorRequirement*")},
    "LabelSelectorRequirement": {1: ("key", "string"), 2: ("operator", "string"), 3: ("values", "string*")},
    "PolicyRule": {
        1: ("verbs", "string*"),
        2: ("apiGroups", "string*"),
        3: ("resources", "string*"),
        4: ("resourceNames", "string*"),
        5: ("nonResourceURLs", "string*"),
    },
    "rbac.authorization.k8s.io/v1/RoleBinding": {
        1: ("metadata", "ObjectMeta"),
        2: ("subjects", "Subject*"),
        3: ("roleRef", "RoleRef"),
    },
    "Subject": {1: ("kind", "string"), 2: ("apiGroup", "string"), 3: ("name", "string"), 4: ("namespace", "string")},
    "RoleRef": {1: ("apiGroup", "string"), 2: ("kind", "string"), 3: ("name", "string")},
    "AccessReviewSpec": {
        1: ("resourceAttributes", "ResourceAttributes"),
        2: ("nonResourceAttributes", "NonResourceAttributes"),
    },
    "ResourceAttributes": {
        1: ("namespace", "string"),
        2: ("verb", "string"),
        3: ("group", "string"),
        4: ("version", "string"),
        5: ("resource", "string"),
        6: ("subresource", "string"),
        7: ("name", "string"),
    },
    "NonResourceAttributes": {1: ("path", "string"), 2: ("verb", "string")},
    "RulesReviewSpec": {1: ("namespace", "string")},
    "policy/v1/Eviction": {1: ("metadata", "ObjectMeta"), 2: ("deleteOptions", "DeleteOptions")},
    "DeleteOptions": {
        1: ("gracePeriodSeconds", "int"),
        2: ("preconditions", "Preconditions"),
        3: ("orphanDependents", "bool"),
        4: ("propagationPolicy", "string"),
        5: ("dryRun", "string*"),
    },
    "Preconditions": {1: ("uid", "string"), 2: ("resourceVersion", "string")},
}
_IGNORED = {"ObjectMeta": (4, 5, 6, 7, 8), "v1/Namespace": (3,)}
"""Fields that the server sets itself. Values that a client sends for them are ignored, as they are in JSON."""
_MESSAGES["v1/DeleteOptions"] = _MESSAGES["DeleteOptions"]
_MESSAGES["rbac.authorization.k8s.io/v1/ClusterRoleBinding"] = _MESSAGES["rbac.authorization.k8s.io/v1/RoleBinding"]


def decode_protobuf(body: bytes) -> Object:
    """Return the object in a Kubernetes protobuf envelope.

    Raises UnsupportedMediaType for a kind without a table, and ValueError for malformed bytes.
    """
    if not body.startswith(_MAGIC):
        raise ValueError("the body does not start with the Kubernetes protobuf prefix")
    api_version = kind = ""
    raw = b""
    for number, value in _fields(body[len(_MAGIC) :]):
        if number == 1 and isinstance(value, bytes):
            types = dict(_fields(value))
            api_version, kind = _text(types.get(1, b"")), _text(types.get(2, b""))
        elif number == 2 and isinstance(value, bytes):
            raw = value
    message = f"{api_version}/{kind}"
    if message not in _MESSAGES:
        raise UnsupportedMediaType(
            f"this server reads no protobuf for {message}; send JSON, for example with "
            "kubectl create … --dry-run=client -o yaml | kubectl apply -f -"
        )
    return {"apiVersion": api_version, "kind": kind, **_message(raw, message)}


def _message(body: bytes, name: str) -> Object:
    table = _MESSAGES[name]
    decoded: Object = {}
    for number, value in _fields(body):
        if number not in table:
            if not _is_blank(value) and number not in _IGNORED.get(name, ()):
                raise UnsupportedMediaType(f"this server does not read field {number} of protobuf {name}; send JSON")
            continue
        field, kind = table[number]
        if kind in {"map", "bytemap"}:
            entry = dict(_fields(_bytes(value)))
            inner = _bytes(entry.get(2, b""))
            text = base64.b64encode(inner).decode() if kind == "bytemap" else _text(inner)
            decoded.setdefault(field, {})[_text(entry.get(1, b""))] = text
        elif kind.endswith("*"):
            decoded.setdefault(field, []).append(_scalar(value, kind[:-1]))
        elif (scalar := _scalar(value, kind)) not in ("", {}):
            decoded[field] = scalar
    return decoded


def _is_blank(value: int | bytes) -> bool:
    """Return whether a field holds only zeros. Clients written in Go send such fields for empty structs."""
    if isinstance(value, int):
        return value == 0
    try:
        return all(_is_blank(inner) for _, inner in _fields(value))
    except ValueError:
        return False


def _scalar(value: int | bytes, kind: str) -> Any:
    match kind:
        case "string":
            return _text(value)
        case "int":
            return value
        case "bool":
            return bool(value)
    return _message(_bytes(value), kind)


def _fields(body: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(body):
        tag, position = _varint(body, position)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, position = _varint(body, position)
            yield number, value
        elif wire in {1, 5}:
            position += 8 if wire == 1 else 4
        elif wire == 2:
            length, position = _varint(body, position)
            if position + length > len(body):
                raise ValueError("a protobuf field is longer than its message")
            yield number, body[position : position + length]
            position += length
        else:
            raise ValueError(f"protobuf wire type {wire} is not in use")


def _varint(body: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(body) or shift > 63:
            raise ValueError("a protobuf number does not end")
        byte = body[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a protobuf field has an unexpected wire type")  # noqa: TRY004 - broken input, not a broken call
    return value


def _text(value: int | bytes) -> str:
    return _bytes(value).decode()
