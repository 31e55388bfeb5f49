"""Checks the default values in a definition. Each default is checked as it is written, without first filling in the
defaults of schemas below it.

It follows k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting. Rules with `oldSelf` are not evaluated for
defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from processkube.kubernetes_api.cel.rules import InvalidRule, check_rules, compile_rules
from processkube.kubernetes_api.objects.errors import Cause
from processkube.kubernetes_api.objects.objects import Object, copy_of, encode
from processkube.kubernetes_api.schemas.schemas import EMBEDDED, item_schema, prune
from processkube.kubernetes_api.schemas.validation import validate


def default_faults(schema: Object, path: str) -> Iterator[Cause]:
    """Yield the faults of the default values in a structural schema and in the schemas below it.

    As in the real server, defaults below `additionalProperties` are not checked.
    """
    if schema.get("default") is not None:
        yield from _faults_of(schema["default"], schema, f"{path}.default")
    if (items := item_schema(schema)) is not None:
        yield from default_faults(items, f"{path}.items")
    for name, inner in schema.get("properties", {}).items():
        yield from default_faults(inner, f"{path}.properties[{name}]")


def _faults_of(value: Any, schema: Object, path: str) -> Iterator[Cause]:
    pruned = copy_of(value)
    if prune(pruned, schema, root=bool(schema.get(EMBEDDED))):
        detail = "must not have unknown fields"
        yield Cause(reason="FieldValueInvalid", field=path, message=f"Invalid value: {encode(value).decode()}: {detail}")
    faults = validate(value, schema, "")
    if faults:
        yield from (Cause(reason=one.reason, field=_joined(path, one.field), message=one.message) for one in faults)
        return
    try:
        rules = compile_rules(schema)
    except InvalidRule:
        return  # reported when the rule itself is checked
    if rules is not None:
        yield from check_rules(value, rules, path)


def _joined(path: str, inner: str) -> str:
    return path + (inner if inner.startswith("[") else f".{inner}" if inner else "")
