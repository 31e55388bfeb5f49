"""Pages of the control API, made from its OpenAPI document: a page for each subject (tag), and a page of all
schemas.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Document = Mapping[str, Any]
NOT_FOR_PEOPLE = "internal"
"""The tag of operations that only processes call. The reference leaves them out."""
BOUNDS = {
    "minimum": "from {}",
    "maximum": "to {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "default": "by default `{}`",
}
METHODS = ("get", "post", "put", "patch", "delete")
SCHEMA = "#/components/schemas/"


def pages(document: Document) -> dict[str, str]:
    """Return the Markdown of each page, by its file's name."""
    subjects = _subjects(document)
    named = {f"{_slug(tag)}.md": _subject_page(tag, operations) for tag, operations in subjects.items()}
    used = _reached(document, [one for operations in subjects.values() for _, _, one in operations])
    schemas = {name: schema for name, schema in document["components"]["schemas"].items() if name in used}
    return {"index.md": _index(document, subjects), **named, "schemas.md": _schemas_page(schemas)}


def _subjects(document: Document) -> dict[str, list[tuple[str, str, Document]]]:
    """Return the operations (method, path, definition) of each tag that is for people, by tag in alphabetical order."""
    found: dict[str, list[tuple[str, str, Document]]] = {}
    for path, methods in document["paths"].items():
        for method in (one for one in METHODS if one in methods):
            found.setdefault(methods[method]["tags"][0], []).append((method.upper(), path, methods[method]))
    return {tag: found[tag] for tag in sorted(found) if tag != NOT_FOR_PEOPLE}


def _reached(document: Document, starts: Iterable[object]) -> set[str]:
    """Return the names of the schemas that these definitions use, directly or through other schemas."""
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        for name in _names(waiting.pop()):
            if name not in found:
                found.add(name)
                waiting.append(document["components"]["schemas"][name])
    return found


def _names(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        if str(value.get("$ref", "")).startswith(SCHEMA):
            yield value["$ref"].removeprefix(SCHEMA)
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _names(one)


def _index(document: Document, subjects: Mapping[str, list[tuple[str, str, Document]]]) -> str:
    rows = [f"| [{tag}]({_slug(tag)}.md) | {len(operations)} |" for tag, operations in subjects.items()]
    return "\n".join(
        (
            "# API reference",
            "",
            f"Every public path of the control API {document['info']['version']}, made of [its OpenAPI document](../openapi.json).",
            "[The API's page](../api.md) says how lists, tags and refusals work. Who is signed in to the web UI finds an explorer",
            "at `/docs`, which sends requests.",
            "",
            "| Subject | Operations |",
            "|---|---|",
            *rows,
            "",
            "[All schemas](schemas.md)",
            "",
            "```{toctree}",
            ":hidden:",
            "",
            *(_slug(tag) for tag in subjects),
            "schemas",
            "```",
            "",
        )
    )


def _subject_page(tag: str, operations: Iterable[tuple[str, str, Document]]) -> str:
    return "\n".join([f"# API: {tag}", "", *(line for one in operations for line in _operation(*one))])


def _operation(method: str, path: str, definition: Document) -> Iterator[str]:
    yield from (f"## {method} `{path}`", "", _prose(definition.get("description", definition["summary"])), "")
    yield from _table(("Parameter", "In", "Type", "Meaning"), map(_parameter, definition.get("parameters", ())))
    if "requestBody" in definition:
        yield from (f"Body: {_content(definition['requestBody'])}", "")
    answers = ((f"`{status}`", _content(one)) for status, one in definition["responses"].items() if "$ref" not in one)
    yield from _table(("Status", "Answer"), answers)


def _parameter(one: Document) -> tuple[str, ...]:
    name = f"`{one['name']}`" + (", required" if one.get("required") else "")
    return name, one["in"], _type(one["schema"]), _prose(one.get("description", ""))


def _content(body: Document) -> str:
    kinds = [
        f"{_type(of['schema'])}" if kind == "application/json" and "schema" in of else kind for kind, of in body.get("content", {}).items()
    ]
    return ", ".join(kinds) or "no body"


def _schemas_page(schemas: Mapping[str, Document]) -> str:
    lines = ["# API: schemas", ""]
    for name in sorted(schemas):
        lines += [f"## {name}", "", _prose(schemas[name].get("description", "")), ""]
        lines += _schema(schemas[name])
    return "\n".join(lines)


def _schema(schema: Document) -> Iterator[str]:
    if "properties" not in schema:
        yield from (_type(schema), "")
        return
    required = schema.get("required", ())
    rows = (
        (f"`{field}`", _type(of) + ("" if field in required else ", optional"), _prose(of.get("description", "")))
        for field, of in schema["properties"].items()
    )
    yield from _table(("Field", "Type", "Meaning"), rows)


def _type(schema: Document) -> str:
    """Return a schema in a few words, with links to schemas that have names."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(SCHEMA)
        return f"[{name}](schemas.md#{name.lower()})"
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    for of in ("anyOf", "oneOf", "allOf"):
        if of in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[of]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return _plain(schema) + _bounds(schema)


def _plain(schema: Document) -> str:
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("type", "any value")
    return f"{kind} ({schema['format']})" if "format" in schema else " or ".join(kind) if isinstance(kind, list) else str(kind)


def _bounds(schema: Document) -> str:
    told = [words.format(schema[key]) for key, words in BOUNDS.items() if schema.get(key) not in (None, "")]
    return f", {', '.join(told)}" if told else ""


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    written = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    if written:
        yield from (f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *written, "")


def _prose(text: str) -> str:
    return " ".join(text.split())


def _slug(tag: str) -> str:
    return tag.replace(" ", "-")
