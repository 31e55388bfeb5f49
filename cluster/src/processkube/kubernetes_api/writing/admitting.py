"""Turns a client's object into an object that may be stored: it is decoded, pruned, defaulted and checked. The store is
not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from processkube.kubernetes_api.cel.rules import check_rules
from processkube.kubernetes_api.definitions.definitions import default_definition, definition_faults
from processkube.kubernetes_api.kinds.kinds import OBJECT_META, ResourceKind
from processkube.kubernetes_api.objects.errors import BadRequest, Cause, Invalid, invalid_value, required_value
from processkube.kubernetes_api.objects.naming import metadata_faults
from processkube.kubernetes_api.objects.objects import Object
from processkube.kubernetes_api.schemas import builtin as builtin_schemas
from processkube.kubernetes_api.schemas.decoding import decode_typed
from processkube.kubernetes_api.schemas.schemas import apply_defaults, prune
from processkube.kubernetes_api.schemas.validation import ABSENT, validate
from processkube.kubernetes_api.writing.builtin_rules import Siblings, builtin_faults, default_builtin

_BLOCKING = frozenset({"FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"})
_UNCHECKED = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"  # fmt: skip


class FieldValidation(StrEnum):
    """The treatment of unknown fields: they are dropped silently, dropped with a warning, or refused."""

    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A decoded object, with warnings for the client."""

    object: Object
    warnings: tuple[str, ...] = ()


def decode_object(kind: ResourceKind, body: object, validation: FieldValidation) -> Decoded:
    """Return a body as an object of this kind, without unknown fields, and the warnings for the client.

    Raises BadRequest for a field of a wrong type and for another kind.
    """
    if not isinstance(body, dict):
        raise BadRequest("the request body is not an object; send one JSON or YAML object")
    item = dict(body)
    given = (item.setdefault("apiVersion", kind.api_version), item.setdefault("kind", kind.kind))
    if given[0] != kind.api_version:
        raise BadRequest(f"the API version in the data ({given[0]}) does not match the expected API version ({kind.api_version})")
    if given[1] != kind.kind:
        raise BadRequest(f"the kind in the data ({given[1]}) does not match the expected kind ({kind.kind})")
    prefix = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
    try:
        if kind.custom:
            metadata = item.get("metadata")
            item["metadata"], unknown = decode_typed(
                metadata if metadata is not None else {},
                builtin_schemas.resolved(OBJECT_META),
                path="metadata",
                struct="ObjectMeta",
            )
            unknown += prune(item, kind.schema, root=True)
        else:
            item, unknown = decode_typed(item, kind.schema, path="", struct=kind.kind)
            item.setdefault("metadata", {})
    except BadRequest as error:
        raise BadRequest(prefix + error.message) from error
    messages = tuple(f'unknown field "{path}"' for path in unknown)
    if messages and validation is FieldValidation.STRICT:
        raise BadRequest(f"{prefix}strict decoding error: {', '.join(messages)}")
    return Decoded(object=item, warnings=messages if validation is FieldValidation.WARN else ())


def fill_defaults(kind: ResourceKind, item: Object, old: Object | None, siblings: Siblings) -> None:
    """Fill in an object's defaults in place. They come from the schema for custom resources, and from code for built-in
    kinds.
    """
    if kind.custom:
        apply_defaults(item, kind.schema)
    elif kind.kind == "CustomResourceDefinition":
        default_definition(item)
    else:
        default_builtin(item, old, siblings)


def check(kind: ResourceKind, item: Object, old: Object | None, *, status_only: bool = False) -> None:
    """Raise Invalid if the object has faults; the error lists all of them."""
    causes = metadata_faults(kind.kind, item["metadata"])
    if kind.custom:
        causes += _custom_faults(kind, item, old)
    elif not status_only:
        causes += _required_faults(kind, item)
        if kind.kind == "CustomResourceDefinition":
            causes += [] if causes else definition_faults(item, old)
        else:
            causes += builtin_faults(item, old)
    if causes:
        unique = list(dict.fromkeys(causes))
        raise Invalid(kind=kind.kind, group=kind.group, name=item["metadata"].get("name", ""), causes=unique)


def _custom_faults(kind: ResourceKind, item: Object, old: Object | None) -> list[Cause]:
    causes = validate(item, kind.schema, "", ABSENT if old is None else old)
    if kind.rules is None:
        return causes
    if any(cause.reason in _BLOCKING for cause in causes):
        return [*causes, invalid_value("<nil>", None, _UNCHECKED)]
    return causes + check_rules(item, kind.rules, "", ABSENT if old is None else old)


def _required_faults(kind: ResourceKind, item: Object) -> list[Cause]:
    """Return a fault for each missing required field of an object of a built-in kind.

    As in the real server, the status is not checked, because controllers fill it in.
    """
    required = kind.schema.get("required", ())
    faults = [required_value(name) for name in required if name not in item and name != "metadata"]
    for name, schema in kind.schema.get("properties", {}).items():
        if name in item and name not in {"status", "metadata"}:
            faults += [cause for cause in validate(item[name], schema, name) if cause.reason != "FieldValueTypeInvalid"]
    return faults
