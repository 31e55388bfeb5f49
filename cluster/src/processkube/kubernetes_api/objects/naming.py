"""Rules for names, labels, label selectors, and the other metadata of an object."""

from __future__ import annotations

import re

from processkube.kubernetes_api.objects.errors import Cause, forbidden_value, invalid_value, required_value
from processkube.kubernetes_api.objects.objects import Object
from processkube.kubernetes_api.objects.selectors import OPERATORS

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_DNS_LABEL = re.compile(_LABEL)
_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"(?:(?P<prefix>[^/]+)/)?(?P<name>([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SERVICE_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_ANNOTATIONS_LIMIT = 256 * 1024


def metadata_faults(kind: str, metadata: Object) -> list[Cause]:
    """Return the faults of an object's name, labels, annotations, finalizers and owner references."""
    return [
        *_name_faults(kind, metadata.get("name", "")),
        *_label_faults(metadata.get("labels", {}), "metadata.labels"),
        *_annotation_faults(metadata.get("annotations", {})),
        *_finalizer_faults(metadata.get("finalizers", [])),
        *_owner_faults(metadata.get("ownerReferences", [])),
    ]


def label_1035_faults(text: str) -> list[str]:
    """Return the reasons why a text is not a DNS-1035 label; empty if it is one."""
    faults = [] if _SERVICE_NAME.fullmatch(text) else [_SERVICE_RULE]
    return [*faults, *(["must be no more than 63 characters"] if len(text) > 63 else [])]


def subdomain_faults(text: str) -> list[str]:
    """Return the reasons why a text is not an RFC 1123 subdomain; empty if it is one."""
    faults = [] if _SUBDOMAIN.fullmatch(text) else [_SUBDOMAIN_RULE]
    return [*faults, *(["must be no more than 253 characters"] if len(text) > 253 else [])]


def label_selector_faults(selector: Object | None, field: str) -> list[Cause]:
    """Return the faults of a `metav1.LabelSelector` object."""
    causes = _label_faults((selector or {}).get("matchLabels", {}), f"{field}.matchLabels")
    for index, term in enumerate((selector or {}).get("matchExpressions", ())):
        causes += _term_faults(term, f"{field}.matchExpressions[{index}]")
    return causes


def _term_faults(term: Object, field: str) -> list[Cause]:
    key, operator, values = term.get("key", ""), term.get("operator", ""), term.get("values", [])
    causes = []
    if operator not in OPERATORS:
        causes.append(invalid_value(f"{field}.operator", operator, "not a valid selector operator"))
    elif operator in {"In", "NotIn"} and not values:
        causes.append(required_value(f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in {"Exists", "DoesNotExist"} and values:
        causes.append(forbidden_value(f"{field}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
    if not _is_qualified(key):
        causes.append(invalid_value(f"{field}.key", key, _QUALIFIED_RULE))
    return causes + [fault for index, value in enumerate(values) for fault in _value_faults(value, f"{field}.values[{index}]")]


def _name_faults(kind: str, name: str) -> list[Cause]:
    field = "metadata.name"
    if not name:
        return [required_value(field, "name or generateName is required")]
    if kind in {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}:
        if name in {".", ".."} or "/" in name or "%" in name:
            return [invalid_value(field, name, "may not be '.' or '..' and may not contain '/' or '%'")]
        return []
    pattern, limit, rule = _SUBDOMAIN, 253, _SUBDOMAIN_RULE
    if kind == "Namespace":
        pattern, limit, rule = _DNS_LABEL, 63, _LABEL_RULE
    elif kind == "Service":
        pattern, limit, rule = _SERVICE_NAME, 63, _SERVICE_RULE
    if len(name) > limit:
        return [invalid_value(field, name, f"must be no more than {limit} characters")]
    return [] if pattern.fullmatch(name) else [invalid_value(field, name, rule)]


def _label_faults(labels: dict[str, str], field: str) -> list[Cause]:
    causes = []
    for key, value in labels.items():
        if not _is_qualified(key):
            causes.append(invalid_value(field, key, _QUALIFIED_RULE))
        causes += _value_faults(value, field)
    return causes


def _value_faults(value: str, field: str) -> list[Cause]:
    """Return the faults of a label's value."""
    if len(value) > 63:
        return [invalid_value(field, value, "must be no more than 63 characters")]
    return [] if _LABEL_VALUE.fullmatch(value) else [invalid_value(field, value, _VALUE_RULE)]


def _annotation_faults(annotations: dict[str, str]) -> list[Cause]:
    causes = [invalid_value("metadata.annotations", key, _QUALIFIED_RULE) for key in annotations if not _is_qualified(key.lower())]
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        message = f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes"
        causes.append(Cause(reason="FieldValueTooLong", field="metadata.annotations", message=message))
    return causes


def _finalizer_faults(finalizers: list[str]) -> list[Cause]:
    return [
        invalid_value("metadata.finalizers", name, "name is neither a standard finalizer name nor is it fully qualified")
        for name in finalizers
        if not _is_qualified(name)
    ]


def _owner_faults(owners: list[Object]) -> list[Cause]:
    causes = [
        required_value(f"metadata.ownerReferences[{index}].{name}")
        for index, owner in enumerate(owners)
        for name in ("apiVersion", "kind", "name", "uid")
        if not owner.get(name)
    ]
    if sum(bool(owner.get("controller")) for owner in owners) > 1:
        causes.append(forbidden_value("metadata.ownerReferences", "Only one reference can have Controller set to true"))
    return causes


def _is_qualified(key: str) -> bool:
    found = _QUALIFIED.fullmatch(key)
    if found is None or len(found["name"]) > 63:
        return False
    return found["prefix"] is None or (len(found["prefix"]) <= 253 and _SUBDOMAIN.fullmatch(found["prefix"]) is not None)
