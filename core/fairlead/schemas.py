"""One description of a document, two uses: the structural schema of a CRD, and reading a document into frozen dataclasses.

A dataclass field made by one of the functions below carries a `Shape`: what may stand there, in the words of the document (camelCase,
durations as text). `structural_schema` turns a class into an OpenAPI v3 schema with defaults, bounds and CEL rules; `read` checks a document
against the same shapes and builds the class. So what the Kubernetes API accepts and what Fairlead accepts cannot drift apart.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

from fairlead.durations import DURATION_PATTERN, parse_duration
from fairlead.errors import InvalidInput

Document = TypeVar("Document")

REQUIRED: Any = MISSING
"""Default of a field that must be written."""

_SHAPE = "fairlead.shape"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A CEL rule of the schema, with the sentence a person reads when it fails."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What may stand in one field. `kind` is an OpenAPI type, or `duration`, `object`, `list`, `free`, `verbatim`."""

    kind: str
    description: str
    default: Any = MISSING
    """As it would be written in the document; MISSING = required, None = may be left out and has no default."""
    minimum: float | None = None
    maximum: float | None = None
    pattern: str | None = None
    max_length: int | None = None
    enum: tuple[str, ...] = ()
    of: type[Any] | None = None
    list_key: str = "name"
    max_items: int = 1
    schema: Mapping[str, Any] | None = None
    rules: tuple[Rule, ...] = ()
    convert: Callable[[Any], Any] | None = None


def _shaped(shape: Shape, python_default: Any) -> Any:
    metadata = {_SHAPE: shape}
    if python_default is MISSING:
        return field(metadata=metadata)
    if callable(python_default):
        return field(default_factory=python_default, metadata=metadata)
    return field(default=python_default, metadata=metadata)


def text(
    description: str,
    default: Any = REQUIRED,
    *,
    pattern: str | None = None,
    enum: tuple[str, ...] = (),
    max_length: int | None = None,
    rules: tuple[Rule, ...] = (),
    convert: Callable[[str], Any] | None = None,
) -> Any:
    """A string, by pattern or out of a closed list; `convert` makes the attribute's value of it."""
    shape = Shape(
        kind="string",
        description=description,
        default=default,
        pattern=pattern,
        enum=enum,
        max_length=max_length,
        rules=rules,
        convert=convert,
    )
    return _shaped(shape, convert(default) if convert and isinstance(default, str) else default)


def whole(description: str, default: Any = REQUIRED, *, minimum: int = 0, maximum: int | None = None) -> Any:
    """An integer within bounds."""
    return _shaped(Shape(kind="integer", description=description, default=default, minimum=minimum, maximum=maximum), default)


def number(description: str, default: Any = REQUIRED, *, minimum: float, maximum: float | None = None) -> Any:
    """A number within bounds; read as float."""
    return _shaped(Shape(kind="number", description=description, default=default, minimum=minimum, maximum=maximum), default)


def truth(description: str, default: Any = REQUIRED) -> Any:
    """true or false."""
    return _shaped(Shape(kind="boolean", description=description, default=default), default)


def duration(description: str, default: str, *, minimum: float, maximum: float) -> Any:
    """A duration written with a unit; the attribute is named `…_seconds`, the document's field without that. Bounds in seconds."""
    shape = Shape(kind="duration", description=description, default=default, minimum=minimum, maximum=maximum, pattern=DURATION_PATTERN)
    return _shaped(shape, parse_duration(default, "default"))


def nested(of: type[Any], description: str, *, optional: bool = False) -> Any:
    """An object described by another class. Left out: its own defaults, or None when `optional`."""
    shape = Shape(kind="object", description=description, of=of, default=None if optional else {})
    return _shaped(shape, None if optional else of)


def listing(of: type[Any], description: str, default: list[dict[str, Any]], *, key: str, max_items: int) -> Any:
    """A list of objects that is a map by `key`, never empty; read as a tuple."""
    shape = Shape(kind="list", description=description, of=of, default=default, list_key=key, max_items=max_items)
    return _shaped(shape, lambda: tuple(read(of, item, "default") for item in default))


def free(description: str) -> Any:
    """An object of any content, checked elsewhere; read as a dict, `{}` when left out."""
    return _shaped(Shape(kind="free", description=description, default={}), dict)


def verbatim(description: str, schema: Mapping[str, Any]) -> Any:
    """An optional object whose schema is given, kept as it is written."""
    return _shaped(Shape(kind="verbatim", description=description, default=None, schema=schema), None)


def shape_of(item: Field[Any]) -> Shape:
    """The shape of a dataclass field made here. Raises KeyError for other fields."""
    shape: Shape = item.metadata[_SHAPE]
    return shape


def document_name(item: Field[Any]) -> str:
    """The field's name in the document: `drain_timeout` → `drainTimeout`; durations lose their `_seconds`."""
    name = item.name.removesuffix("_seconds") if shape_of(item).kind == "duration" else item.name
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def structural_schema(of: type[Any], description: str | None = None) -> dict[str, Any]:
    """The OpenAPI v3 structural schema (as Kubernetes understands it) of a class whose fields were made here."""
    schema: dict[str, Any] = {"type": "object"}
    if description:
        schema["description"] = description
    schema["properties"] = {document_name(item): _schema_of(shape_of(item)) for item in fields(of)}
    required = [document_name(item) for item in fields(of) if shape_of(item).default is MISSING]
    if required:
        schema["required"] = required
    _add_rules(schema, getattr(of, "RULES", ()))
    return schema


def _schema_of(shape: Shape) -> dict[str, Any]:
    if shape.kind == "object" and shape.of is not None:
        schema = structural_schema(shape.of, shape.description)
    elif shape.kind == "list" and shape.of is not None:
        schema = {
            "type": "array",
            "description": shape.description,
            "minItems": 1,
            "maxItems": shape.max_items,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [shape.list_key],
            "items": structural_schema(shape.of),
        }
    elif shape.kind == "free":
        schema = {"type": "object", "description": shape.description, "x-kubernetes-preserve-unknown-fields": True}
    elif shape.kind == "verbatim":
        schema = {"description": shape.description, **(shape.schema or {})}
    else:
        schema = {"type": "string" if shape.kind == "duration" else shape.kind, "description": shape.description}
        if shape.kind != "duration":
            schema |= {key: value for key, value in (("minimum", shape.minimum), ("maximum", shape.maximum)) if value is not None}
        if shape.pattern:
            schema["pattern"] = shape.pattern
        if shape.enum:
            schema["enum"] = list(shape.enum)
        if shape.max_length:
            schema["maxLength"] = shape.max_length
    if shape.kind == "list" and shape.of is not None:
        schema["default"] = [_written_out(shape.of, item) for item in shape.default]
    elif shape.default is not MISSING and shape.default is not None:
        schema["default"] = shape.default
    _add_rules(schema, (*_rules_of_bounds(shape), *shape.rules))
    return schema


def _written_out(of: type[Any], item: Mapping[str, Any]) -> dict[str, Any]:
    """The item with its own defaults: Kubernetes checks a default as it is written, before it fills in those nested in it."""
    defaults = {document_name(field): item.get(document_name(field), shape_of(field).default) for field in fields(of)}
    return {name: value for name, value in defaults.items() if value is not MISSING and value is not None}


def _rules_of_bounds(shape: Shape) -> tuple[Rule, ...]:
    """Kubernetes cuts the decimals off a bound before it compares a whole number with it, so 0 would pass a minimum of 0.01."""
    if shape.kind != "number" or shape.minimum is None or shape.minimum == int(shape.minimum):
        return ()
    return (Rule(rule=f"self >= {shape.minimum}", message=f"write at least {shape.minimum:g}"),)


def _add_rules(schema: dict[str, Any], rules: tuple[Rule, ...]) -> None:
    if rules:
        schema["x-kubernetes-validations"] = [{"rule": rule.rule, "message": rule.message} for rule in rules]


def read(of: type[Document], document: object, path: str) -> Document:
    """Build `of` from a document found at `path`, with defaults for what is left out (or null).

    Raises InvalidInput naming the exact field for unknown, missing, mistyped and out-of-bounds fields. CEL rules are not evaluated here.
    """
    if not isinstance(document, Mapping):
        raise InvalidInput(path, document, "write an object with fields")
    known = {document_name(item): item for item in fields(of)}  # type: ignore[arg-type]  # every Document is a dataclass of shaped fields
    for name in document:
        if name not in known:
            raise InvalidInput(f"{path}.{name}", document[name], f"remove it; the fields of {path} are {', '.join(known)}")
    values: dict[str, Any] = {}
    for name, item in known.items():
        if document.get(name) is not None:
            values[item.name] = _read_value(shape_of(item), document[name], f"{path}.{name}")
        elif shape_of(item).default is MISSING:
            sentence = shape_of(item).description.rstrip(".")
            raise InvalidInput(f"{path}.{name}", None, f"it is required; write the {sentence[0].lower()}{sentence[1:]}")
    return of(**values)


def _read_value(shape: Shape, value: object, path: str) -> Any:
    if shape.kind == "object" and shape.of is not None:
        return read(shape.of, value, path)
    if shape.kind == "list" and shape.of is not None:
        return _read_list(shape, shape.of, value, path)
    if shape.kind in {"free", "verbatim"}:
        if not isinstance(value, Mapping):
            raise InvalidInput(path, value, "write an object")
        return dict(value)
    if shape.kind == "boolean":
        if not isinstance(value, bool):
            raise InvalidInput(path, value, "write true or false")
        return value
    if shape.kind in {"integer", "number", "duration"}:
        return _read_number(shape, value, path)
    return _read_text(shape, value, path)


def _read_list(shape: Shape, of: type[Any], value: object, path: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= shape.max_items:
        raise InvalidInput(path, value, f"write a list of 1 to {shape.max_items} items")
    items = tuple(read(of, item, f"{path}[{index}]") for index, item in enumerate(value))
    keys = [getattr(item, shape.list_key) for item in items]
    if len(set(keys)) < len(keys):
        raise InvalidInput(path, [str(key) for key in keys], f"give every item another {shape.list_key}")
    return items


def _read_number(shape: Shape, value: object, path: str) -> float | int:
    amount: float | int
    if shape.kind == "duration":
        amount = parse_duration(value, path)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(path, value, f"write {'a whole number' if shape.kind == 'integer' else 'a number'}")
    elif shape.kind == "integer":
        if value != int(value):
            raise InvalidInput(path, value, "write a whole number")
        amount = int(value)
    else:
        amount = float(value)
    unit = "s" if shape.kind == "duration" else ""
    if shape.minimum is not None and not amount >= shape.minimum:
        raise InvalidInput(path, value, f"write at least {shape.minimum:g}{unit}")
    if shape.maximum is not None and amount > shape.maximum:
        raise InvalidInput(path, value, f"write at most {shape.maximum:g}{unit}")
    return amount


def _read_text(shape: Shape, value: object, path: str) -> Any:
    if shape.enum and value not in shape.enum:
        raise InvalidInput(path, value, f"write one of {', '.join(shape.enum)}")
    if not isinstance(value, str):
        raise InvalidInput(path, value, "write text (in quotes, if it looks like a number)")
    if shape.max_length is not None and len(value) > shape.max_length:
        raise InvalidInput(path, value, f"write at most {shape.max_length} characters")
    if shape.pattern and re.search(_as_in_kubernetes(shape.pattern), value) is None:
        raise InvalidInput(path, value, f"write text that matches {shape.pattern}")
    return shape.convert(value) if shape.convert else value


def _as_in_kubernetes(pattern: str) -> str:
    """Python's `$` also matches before a last newline, Kubernetes' does not."""
    return pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern
