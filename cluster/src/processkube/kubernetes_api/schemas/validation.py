"""Checks a value against a structural schema. Each fault is reported with its field path, in the real server's
words.
"""

from __future__ import annotations

import ipaddress
import re
import uuid
from collections.abc import Callable
from datetime import date
from functools import cache
from typing import Any

import re2

from processkube.kubernetes_api.objects.errors import (
    Cause,
    duplicate_value,
    invalid_value,
    not_supported,
    required_value,
    type_invalid,
)
from processkube.kubernetes_api.objects.objects import Object, canonical, parse_timestamp
from processkube.kubernetes_api.schemas.schemas import EMBEDDED, INT_OR_STRING, LIST_TYPE, item_schema, key_of, list_keys

ABSENT = object()
"""Stands for a missing old value. None cannot stand for it, because None is a possible value."""


class PatternInvalid(ValueError):
    """Raised for a pattern that is not a regular expression; the message has the reason."""


_QUANTITY = re.compile(r"^[+-]?(\d+(\.\d*)?|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?$")
_DURATION = re.compile(r"^[+-]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+)$")


def validate(value: Any, schema: Object, path: str, old: Any = ABSENT) -> list[Cause]:
    """Return all faults of `value`.

    A part that equals its old value is not checked again (the real server calls this ratcheting). So if a schema is
    made stricter, an object can still be changed elsewhere.
    """
    if old is not ABSENT and old == value:
        return []
    if value is None:
        return [] if schema.get("nullable") or "type" not in schema else [_wrong_type(value, schema["type"], path)]
    if fault := _type_fault(value, schema, path):
        return [fault]
    causes = [*_value_faults(value, schema, path), *_composition_faults(value, schema, path)]
    if isinstance(value, dict):
        causes += _object_faults(value, schema, path, old)
    elif isinstance(value, list):
        causes += _list_faults(value, schema, path, old)
    return causes


def type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names: dict[type, str] = {str: "string", int: "integer", float: "number", dict: "object", list: "array"}
    return names.get(type(value), "null")


def _wrong_type(value: Any, wanted: str, path: str) -> Cause:
    actual = type_name(value)
    return type_invalid(path, actual, f'{path} in body must be of type {wanted}: "{actual}"')


def _type_fault(value: Any, schema: Object, path: str) -> Cause | None:
    wanted = schema.get("type")
    actual = type_name(value)
    if schema.get(INT_OR_STRING) and wanted is None:
        return None if actual in {"integer", "string"} else _wrong_type(value, "integer,string", path)
    if wanted is None or actual == wanted or (wanted == "number" and actual == "integer"):
        return None
    if wanted == "integer" and isinstance(value, float) and value.is_integer():
        return None
    return _wrong_type(value, wanted, path)


def _value_faults(value: Any, schema: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []

    def fault(detail: str) -> None:
        causes.append(invalid_value(path, value, f"{path} in body {detail}"))

    if (words := schema.get("enum")) and value not in words:
        causes.append(not_supported(path, value, words))
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            fault(f"should be at least {schema['minLength']} chars long")
        if "maxLength" in schema and len(value) > schema["maxLength"]:
            message = f"Too long: may not be more than {schema['maxLength']} bytes"
            causes.append(Cause(reason="FieldValueTooLong", field=path, message=message))
        if "pattern" in schema and not compiled_pattern(schema["pattern"]).search(value):
            fault(f"should match '{schema['pattern']}'")
        if (known := _FORMATS.get(schema.get("format", ""))) and not known(value):
            fault(f'must be of type {schema["format"]}: "{value}"')
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in schema:
            low = _comparable(schema["minimum"], value)
            if schema.get("exclusiveMinimum") and value <= low:
                fault(f"should be greater than {schema['minimum']}")
            elif value < low:
                fault(f"should be greater than or equal to {schema['minimum']}")
        if "maximum" in schema:
            high = _comparable(schema["maximum"], value)
            if schema.get("exclusiveMaximum") and value >= high:
                fault(f"should be less than {schema['maximum']}")
            elif value > high:
                fault(f"should be less than or equal to {schema['maximum']}")
        if "multipleOf" in schema and abs(value / schema["multipleOf"] - round(value / schema["multipleOf"])) > 1e-9:
            fault(f"should be a multiple of {schema['multipleOf']}")
        if schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
            fault(f'must be of type int32: "{value}"')
    return causes


def _items(count: int) -> str:
    return f"{count} item{'' if count == 1 else 's'}"


def _comparable(bound: float, value: float) -> float:
    """Return the minimum or maximum of a schema as the real server compares a number with it.

    For an integer, the real server drops the decimals of the minimum or maximum; for example, 0 passes a minimum of
    0.01.
    """
    return int(bound) if isinstance(value, int) else bound


def _composition_faults(value: Any, schema: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for part in schema.get("allOf", ()):
        causes += validate(value, part, path)
    if (options := schema.get("anyOf")) and all(validate(value, option, path) for option in options):
        causes.append(invalid_value(path, value, f"{path} in body must validate at least one schema (anyOf)"))
    if options := schema.get("oneOf"):
        matching = sum(not validate(value, option, path) for option in options)
        if matching != 1:
            found = "Found none valid" if not matching else f"Found {matching} valid alternatives"
            causes.append(invalid_value(path, value, f"{path} in body must validate one and only one schema (oneOf). {found}"))
    if "not" in schema and not validate(value, schema["not"], path):
        causes.append(invalid_value(path, value, f"{path} in body must not validate the schema (not)"))
    return causes


def _object_faults(value: Object, schema: Object, path: str, old: Any) -> list[Cause]:
    prefix = f"{path}." if path else ""
    causes = [required_value(f"{prefix}{name}") for name in schema.get("required", ()) if name not in value]
    if schema.get(EMBEDDED):
        causes += [required_value(f"{prefix}{name}") for name in ("apiVersion", "kind") if not value.get(name)]
    if len(value) < schema.get("minProperties", 0):
        causes.append(invalid_value(path, value, f"{path} in body should have at least {schema['minProperties']} properties"))
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        message = f"Too many: {len(value)}: must have at most {_items(schema['maxProperties'])}"
        causes.append(Cause(reason="FieldValueTooMany", field=path, message=message))
    properties = schema.get("properties", {})
    extra = schema.get("additionalProperties")
    before = old if isinstance(old, dict) else {}
    for name, member in value.items():
        if name in properties:
            causes += validate(member, properties[name], f"{prefix}{name}", before.get(name, ABSENT))
        elif isinstance(extra, dict):
            causes += validate(member, extra, f"{path}[{name}]", before.get(name, ABSENT))
    return causes


def _list_faults(value: list[Any], schema: Object, path: str, old: Any) -> list[Cause]:
    causes: list[Cause] = []
    if len(value) < schema.get("minItems", 0):
        causes.append(invalid_value(path, value, f"{path} in body should have at least {schema['minItems']} items"))
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        message = f"Too many: {len(value)}: must have at most {_items(schema['maxItems'])}"
        causes.append(Cause(reason="FieldValueTooMany", field=path, message=message))
    items = item_schema(schema)
    keys = list_keys(schema)
    unique = schema.get(LIST_TYPE) == "set" or schema.get("uniqueItems") or keys
    before = _old_items(old, keys, schema)
    seen: set[str] = set()
    for index, item in enumerate(value):
        identity = canonical(list(key_of(item, keys, schema)) if keys else item)
        if unique and identity in seen:
            shown = dict(zip(keys, key_of(item, keys, schema), strict=True)) if keys else item
            causes.append(duplicate_value(f"{path}[{index}]", canonical(shown) if keys else shown))
        seen.add(identity)
        if items is not None:
            causes += validate(item, items, f"{path}[{index}]", before.get(identity if keys else str(index), ABSENT))
    return causes


def _old_items(old: Any, keys: tuple[str, ...], schema: Object) -> dict[str, Any]:
    if not isinstance(old, list):
        return {}
    if keys:
        return {canonical(list(key_of(item, keys, schema))): item for item in old}
    return {str(index): item for index, item in enumerate(old)}


@cache
def compiled_pattern(pattern: str) -> Any:
    """Return the pattern as a compiled regular expression with Go's syntax. Raises PatternInvalid."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        cause = error.args[0] if error.args else ""
        raise PatternInvalid(cause.decode() if isinstance(cause, bytes) else str(cause)) from None


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


def _base64(text: str) -> bool:
    return len(text) % 4 == 0 and re.fullmatch(r"[A-Za-z0-9+/]*={0,2}", text) is not None


_FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _parses(parse_timestamp),
    "date": _parses(date.fromisoformat),
    "duration": lambda text: _DURATION.match(text) is not None,
    "byte": _base64,
    "quantity": lambda text: _QUANTITY.match(text) is not None,
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "cidr": _parses(lambda text: ipaddress.ip_network(text, strict=False)),
    "uuid": _parses(uuid.UUID),
    "uri": lambda text: re.match(r"^[A-Za-z][A-Za-z0-9+.-]*:\S+$", text) is not None,
    "hostname": lambda text: re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", text) is not None,
    "email": lambda text: re.fullmatch(r"[^@\s]+@[^@\s]+", text) is not None,
}
