"""The shapes that a document's field may have, and the functions that declare them on a dataclass."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any

from fairlead.durations import DURATION_PATTERN, format_duration, parse_duration

REQUIRED: Any = MISSING
"""Marks a field without a default; the document must contain the field."""

_SHAPE = "fairlead.shape"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule between fields of one object.

    `cel` is the rule for the Kubernetes API, `holds` the same rule for `read`, and `message` the sentence for people
    when the rule fails. `holds` gets the object after reading. It is None for a transition rule, which compares with
    the previous object and which only Kubernetes checks. `field` is the field at fault, by its name in the document:
    `replicas`.
    """

    cel: str
    message: str
    field: str = ""
    holds: Callable[[Any], bool] | None = None
    fault: Callable[[Any], tuple[str, object]] | None = None
    """A function of the object that returns two values about the part that breaks the rule: its path below the object,
    and the value at that path. If None, `field` names the part.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The values one field may hold.

    `kind` is an OpenAPI type, or `duration`, `object`, `list`, `texts`, `labels`, `free`, `verbatim`.
    """

    kind: str
    description: str
    default: Any
    """The default as the document would write it; MISSING = required, None = may be left out and has no default."""
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
    """Converts a text to the attribute's value; `str` converts the value back. If it raises ValueError, the error's
    message is the remedy.
    """
    document_name: str = ""
    """The field's name in the document, if it does not follow from the attribute's name."""

    @property
    def min_items(self) -> int:
        """The minimum number of items of a list; an empty list is allowed only if it is the default."""
        return 1 if self.default else 0

    @property
    def wanted(self) -> str:
        """The allowed values in words: `a number from 0 to 1`."""
        if self.enum:
            return "one of " + ", ".join(self.enum)
        return _NOUNS[self.kind] + self._bounds()

    def _bounds(self) -> str:
        least, most = (None if bound is None else self._amount(bound) for bound in (self.minimum, self.maximum))
        if least is not None and most is not None:
            return f" from {least} to {most}"
        return f" of at least {least}" if least is not None else f" of at most {most}" if most is not None else ""

    def _amount(self, bound: float) -> str:
        return format_duration(bound) if self.kind == "duration" else f"{bound:.15g}"


_NOUNS = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "duration": "a duration",
    "string": "text (in quotes, if it looks like a number)",
    "texts": "a list of texts",
    "labels": "an object with texts",
    "free": "an object",
    "verbatim": "an object",
}


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
    """Declare a field for a string, limited by a pattern or a closed list; `convert` turns it into the attribute's
    value.
    """
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
    """Declare a field for an integer within bounds (both inclusive)."""
    return _shaped(Shape(kind="integer", description=description, default=default, minimum=minimum, maximum=maximum), default)


def number(description: str, default: Any = REQUIRED, *, minimum: float, maximum: float | None = None) -> Any:
    """Declare a field for a number within bounds (both inclusive), which is read as float."""
    shape = Shape(kind="number", description=description, default=default, minimum=minimum, maximum=maximum)
    return _shaped(shape, float(default) if isinstance(default, int) else default)


def truth(description: str, default: Any = REQUIRED) -> Any:
    """Declare a field for true or false."""
    return _shaped(Shape(kind="boolean", description=description, default=default), default)


def duration(description: str, default: str | None = REQUIRED, *, minimum: float, maximum: float, document_name: str = "") -> Any:
    """Declare a field for a duration written with a unit. Bounds are in seconds. If the default is None, the field may
    be left out, and its value is then None.

    The attribute is named `…_seconds`; the document's field has that name without the ending, unless `document_name` is
    given.
    """
    shape = Shape(
        kind="duration",
        description=description,
        default=default,
        minimum=minimum,
        maximum=maximum,
        pattern=DURATION_PATTERN,
        document_name=document_name,
    )
    return _shaped(shape, default if default in (REQUIRED, None) else parse_duration(default, "default"))


def nested(of: type[Any], description: str, *, optional: bool = False) -> Any:
    """Declare a field for an object that another class describes. If left out, it has that class's defaults, or is None
    if `optional`.
    """
    shape = Shape(kind="object", description=description, of=of, default=None if optional else {})
    return _shaped(shape, None if optional else of)


def override(of: type[Any], name: str) -> Any:
    """Declare a field with the bounds and words of the field `name` of another class; its value is None if left out."""
    (item,) = (item for item in fields(of) if item.name == name)
    return _shaped(replace(shape_of(item), default=None), None)


def listing(of: type[Any], description: str, default: tuple[Any, ...], *, key: str, max_items: int) -> Any:
    """Declare a field for a list of objects, unique by `key`, which is read as a tuple. The list may be empty only if
    its default is.

    `default` holds objects of the class `of`.
    """
    return _shaped(Shape(kind="list", description=description, of=of, default=default, list_key=key, max_items=max_items), default)


def texts(description: str, *, pattern: str, max_length: int, max_items: int, convert: Callable[[str], Any]) -> Any:
    """Declare a field for a list of texts, each read by `convert`; an empty tuple if left out."""
    shape = Shape(
        kind="texts", description=description, default=(), pattern=pattern, max_length=max_length, max_items=max_items, convert=convert
    )
    return _shaped(shape, ())


def labels(description: str, *, pattern: str, max_length: int, max_items: int) -> Any:
    """Declare a field for an object with texts of any names, each limited by a pattern. It is read as a dict, `{}` if
    left out.
    """
    shape = Shape(kind="labels", description=description, default={}, pattern=pattern, max_length=max_length, max_items=max_items)
    return _shaped(shape, dict)


def free(description: str) -> Any:
    """Declare a field for an object with any content, checked elsewhere. It is read as a dict, `{}` if left out."""
    return _shaped(Shape(kind="free", description=description, default={}), dict)


def verbatim(description: str, schema: Mapping[str, Any]) -> Any:
    """Declare a field for an optional object with a given schema; the object is kept exactly as written."""
    return _shaped(Shape(kind="verbatim", description=description, default=None, schema=schema), None)


def shape_of(item: Field[Any]) -> Shape:
    """Return the shape of a dataclass field that a function of this module made. Raises KeyError for other fields."""
    shape: Shape = item.metadata[_SHAPE]
    return shape


def shape_at(of: type[Any], path: str) -> Shape | None:
    """Return the shape of the field at a dotted path below a class, such as `scaleUp.percent`; for lists, the shape of
    their items' field. None if there is no such field.
    """
    name, _, rest = path.partition(".")
    found = next((shape_of(item) for item in fields(of) if document_name(item) == name), None)
    if found is None or not rest:
        return found
    return None if found.of is None else shape_at(found.of, rest)


def document_name(item: Field[Any]) -> str:
    """Return the field's name in the document: `min_replicas` → `minReplicas`; durations lose their `_seconds`."""
    shape = shape_of(item)
    if shape.document_name:
        return shape.document_name
    name = item.name.removesuffix("_seconds") if shape.kind == "duration" else item.name
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
