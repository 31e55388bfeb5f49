"""The editor of a pool's spec: reads the typed text as a spec, shows faults at their lines, lists the fields of the
schema, and offers examples for a new pool.

The schema checks the text before it is sent, and the API checks it again. Both name a faulty field by its path, from
which this module finds the line. The danger: a fault must look the same whichever of the two found it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fairlead.errors import InvalidInput
from fairlead.pools import KIND, PoolSpec, parse_spec
from fairlead.schemas.shapes import Shape, document_name, shape_of
from fairlead_client.resources.problems import Problem
from fairlead_process.yaml_documents import complaint, read_yaml
from fairlead_web.forms.change_forms import help_of
from fairlead_web.text import formats
from fairlead_web.text.yaml_text import line_of

AROUND = 2
"""Number of lines shown before and after a faulty line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The reason why a text was refused (`words`), the number of the `line` (from 1; 0 = no line), and the lines around
    it with their numbers.
    """

    words: str
    line: int = 0
    around: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaField:
    """A field that a spec may have: its `path`, its permitted values, its meaning, and for an object the fields inside
    it.
    """

    name: str
    path: str
    wanted: str
    words: str
    inner: tuple["SchemaField", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An example of a spec: its file name, its description, and the spec as text."""

    name: str
    words: str
    text: str


class Faulty(Exception):
    """A text is not a valid spec; `fault` says why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.words)
        self.fault = fault


def read_spec(text: str) -> dict[str, Any]:
    """Return the spec in a text. The text is either a spec or a whole InferencePool. Raises Faulty."""
    try:
        found = read_yaml(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise Faulty(_fault(f"This is not valid YAML: {complaint(error)}.", text, mark.line + 1 if mark else 0)) from error
    spec = found.get("spec") if isinstance(found, dict) and found.get("kind") == KIND else found
    if not isinstance(spec, dict):
        raise Faulty(_fault("Write the fields of a spec, such as model and replicas.", text, 1))
    return spec


def check_spec(text: str, spec: Mapping[str, Any]) -> None:
    """Raises Faulty if the schema refuses the spec; `text` is needed to find the faulty line."""
    try:
        parse_spec(spec)
    except InvalidInput as error:
        raise Faulty(_fault(str(error), text, _line(text, error.field))) from error


def fault_of(text: str, problem: Problem) -> Fault:
    """Return the fault that describes the API's problem with a text."""
    told = formats.told(problem.detail, problem.remedy)
    return _fault(told, text, _line(text, problem.field)) if problem.field else Fault(words=told)


def _line(text: str, path: str) -> int:
    whole = re.search(r"(?m)^spec:", text) is not None and re.search(rf"(?m)^kind: *{KIND}", text) is not None
    return line_of(text, path if whole else path.removeprefix("spec").removeprefix("."))


def _fault(words: str, text: str, line: int) -> Fault:
    lines = text.splitlines()
    first = max(1, line - AROUND)
    around = tuple(enumerate(lines[first - 1 : line + AROUND], first)) if line else ()
    return Fault(words=words, line=line, around=around)


@cache
def schema_fields() -> tuple[SchemaField, ...]:
    """Return the fields of a spec, as the CRD documents them."""
    return _fields(PoolSpec, "")


def _fields(of: type[Any], path: str) -> tuple[SchemaField, ...]:
    return tuple(_schema_field(document_name(item), shape_of(item), path) for item in fields(of))


def _schema_field(name: str, shape: Shape, path: str) -> SchemaField:
    here = f"{path}.{name}".removeprefix(".")
    inner = () if shape.of is None else _fields(shape.of, f"{here}[]" if shape.kind == "list" else here)
    kind = "a list of objects" if shape.kind == "list" else "an object" if inner else shape.wanted
    wanted = f"{kind}, required" if shape.default is MISSING else kind
    return SchemaField(name=name, path=here, wanted=wanted, words=shape.description if inner else help_of(shape), inner=inner)


@cache
def examples() -> Sequence[Example]:
    """Return the examples that define one pool each. Examples with a simulated engine come first."""
    packaged, repository = Path(__file__).parents[1] / "examples", Path(__file__).parents[3] / "examples"
    folder = packaged if packaged.is_dir() else repository
    found = [one for path in sorted(folder.glob("*.yaml")) if (one := _example(path)) is not None]
    return sorted(found, key=lambda one: "type: simulated" not in one.text)


def _example(path: Path) -> Example | None:
    text = path.read_text(encoding="utf-8")
    documents = [one for one in yaml.safe_load_all(text) if one]
    if len(documents) != 1 or documents[0].get("kind") != KIND:
        return None
    about = " ".join(line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#"))
    _, _, spec = text.partition("\nspec:\n")
    lines = [line.removeprefix("  ") for line in spec.splitlines()]
    return Example(name=path.stem, words=re.split(r"(?<=[.:]) |$", about)[0].rstrip(".:") + ".", text="\n".join(lines).strip() + "\n")
