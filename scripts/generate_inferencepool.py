#!/usr/bin/env python3
"""Writes docs/inferencepool.md, the page of every field of the CRDs, from their schemas and with examples from
`examples/`.

With `--check` it only compares the page.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from generated_page import DOCS, settle, table

from fairlead.crds import custom_resource_definition, role_definition
from fairlead.durations import DURATION_PATTERN

EXAMPLES = Path(__file__).parents[1] / "examples"
INTRODUCTION = """
# InferencePool and InferencePoolRole

Every field of both, version `fairlead.dev/v1alpha1`. This page is written by `make generate` from the schemas in `crds/`; each example is from a file
in [`examples/`](../examples), which a test applies to a Kubernetes API. kubectl refuses what the schema does not
know; from clients that do not ask for strict validation Kubernetes drops it, with a warning. A duration is written as `500ms`,
`30s`, `2m` or `1h30m`. Policies check their own parameters: [policies.md](policies.md).
"""
WIDEST_EXAMPLE = 100


class NoExampleError(Exception):
    """A field that no file of `examples/` shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field, with the values that the examples give it."""

    name: str
    section: str
    schema: dict[str, Any]
    required: bool
    seen: tuple[Any, ...]

    @property
    def parts(self) -> dict[str, Any] | None:
        """The schema of the object, or of each listed object, that this field has; None if it has no such objects."""
        inner: dict[str, Any] = self.schema.get("items", self.schema)
        return inner if inner.get("properties") and not inner.get("x-kubernetes-preserve-unknown-fields") else None

    @property
    def inside(self) -> str:
        """The name of the section for the fields within this field."""
        return f"{self.section}.{self.name}{'[]' * ('items' in self.schema)}"


Column = tuple[str, Callable[[Field], str]]


def fields(schema: dict[str, Any], section: str, seen: tuple[Any, ...]) -> Iterator[Field]:
    """Yield the fields of an object; `seen` are the objects of this kind in the examples."""
    for name, inner in schema["properties"].items():
        values = tuple(one[name] for one in seen if isinstance(one, dict) and name in one)
        yield Field(name=name, section=section, schema=inner, required=name in schema.get("required", ()), seen=values)


def sections(schema: dict[str, Any], section: str, columns: tuple[Column, ...], seen: tuple[Any, ...] = ()) -> Iterator[str]:
    """Yield the section of this object, with its table and the rules between its fields, then those of the objects in
    it.
    """
    here = list(fields(schema, section, seen))
    parts = [f"### {section}", schema.get("description", "")]
    parts.append(table([head for head, _ in columns], [[cell(field) for _, cell in columns] for field in here]).rstrip())
    rules = [f"- {rule['message']}" for rule in schema.get("x-kubernetes-validations", ())]
    if rules:
        parts.append("Rules between these fields:\n\n" + "\n".join(rules))
    yield "\n\n".join(part for part in parts if part) + "\n"
    for field in here:
        if field.parts is not None:
            described = {**field.parts, "description": field.schema.get("description", "")}
            items = tuple(item for value in field.seen for item in (value if isinstance(value, list) else [value]))
            yield from sections(described, field.inside, columns, items)


def name(field: Field) -> str:
    """Return the field's name as code."""
    return f"`{field.name}`"


def kind(field: Field) -> str:
    """Return a word for the field's type. For an object it links to the object's own section."""
    if field.parts is None:
        return word(field.schema)
    anchor = "".join(letter for letter in field.inside.lower().replace(" ", "-") if letter.isalnum() or letter in "-_")
    return f"[{word(field.schema)}](#{anchor})"


def word(schema: dict[str, Any]) -> str:
    """Return a word for a type."""
    if schema.get("pattern") == DURATION_PATTERN:
        return "duration"
    if schema.get("format") == "date-time":
        return "time"
    if schema.get("type") == "array":
        return f"list of {word(schema['items'])}s"
    words = {"integer": "whole number", "boolean": "true or false", "string": "text"}
    return words.get(schema.get("type", ""), schema.get("type", "any"))


def default(field: Field) -> str:
    """Return the default as a user would write it; empty for an object whose default follows from its fields."""
    if field.required:
        return "required"
    value = field.schema.get("default")
    return "" if value is None or value == {} else code(value)


def rule(field: Field) -> str:
    """Return bounds, patterns and rules of a field in words."""
    schema, found = field.schema, []
    if "enum" in schema:
        found.append(" or ".join(f"`{one}`" for one in schema["enum"]))
    if "minimum" in schema:
        found.append(f"{schema['minimum']:.12g} to {schema['maximum']:.12g}")
    if "maxItems" in schema:
        found.append(f"{schema.get('minItems', 0)} to {schema['maxItems']} of them")
    found += [f"no two with the same `{key}`" for key in schema.get("x-kubernetes-list-map-keys", ())]
    texts = schema.get("items", schema)
    if texts.get("pattern", DURATION_PATTERN) != DURATION_PATTERN:
        found.append(f"matches `{texts['pattern']}`")
    if "maxLength" in texts:
        found.append(f"at most {texts['maxLength']} characters")
    if field.parts is None:
        bound = f"self >= {schema.get('minimum')}"
        found += [one["message"] for one in schema.get("x-kubernetes-validations", ()) if one["rule"] != bound]
        found += [f"needs `{path}`" for path in required_within(schema)]
    return "; ".join(found)


def required_within(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the paths of the required values in an object whose other fields are free."""
    inner = schema.get("items", schema)
    for each in inner.get("required", ()):
        below = inner["properties"][each]
        place = f"{path}{each}{'[]' * (below.get('type') == 'array')}"
        if "required" in below.get("items", below):
            yield from required_within(below, f"{place}.")
        else:
            yield place


def example(field: Field) -> str:
    """Return the first value that an example gives this field."""
    if field.parts is not None:
        return ""
    if not field.seen:
        raise NoExampleError(f"no file of examples/ shows {field.section}.{field.name}; write it into one, such as all-fields.yaml")
    written = code(field.seen[0])
    return written if len(written) <= WIDEST_EXAMPLE else "in [`examples/`](../examples)"


def code(value: Any) -> str:
    """Return a value as it may be written in YAML, formatted as code."""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def meaning(field: Field) -> str:
    """Return the field's description."""
    return str(field.schema.get("description", ""))


STATUS: tuple[Column, ...] = (("Field", name), ("Type", kind), ("Meaning", meaning))
SPEC: tuple[Column, ...] = (*STATUS[:2], ("Default", default), ("Rule", rule), STATUS[2])
SPEC_WITH_EXAMPLES: tuple[Column, ...] = (*SPEC[:4], ("Example", example), SPEC[4])


def pools() -> tuple[Any, ...]:
    """Return the specs of all valid example pools, in the files' order."""
    documents = (
        one
        for file in sorted((*EXAMPLES.glob("*.yaml"), *(EXAMPLES / "engines").glob("*.yaml")), key=lambda path: (path.parent, path.stem))
        for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    )
    return tuple(one["spec"] for one in documents if one["kind"] == "InferencePool")


def page() -> str:
    """Return the whole page. Raises NoExampleError for a field that no example shows."""
    parts = [INTRODUCTION.strip() + "\n"]
    for definition, prefix, columns, seen in (
        (custom_resource_definition(), "", SPEC_WITH_EXAMPLES, pools()),
        (role_definition(), "InferencePoolRole ", SPEC, ()),
    ):
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        rules = "\n".join(f"- {one['message']}" for one in schema["x-kubernetes-validations"])
        parts.append(f"## {definition['spec']['names']['kind']}\n\n{schema['description']}\n\n{rules}\n")
        parts += sections(schema["properties"]["spec"], f"{prefix}spec", columns, seen)
        parts += sections(schema["properties"]["status"], f"{prefix}status", STATUS)
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(settle(DOCS / "inferencepool.md", page()))
