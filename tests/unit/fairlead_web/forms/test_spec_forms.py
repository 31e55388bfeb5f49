"""The editor of a spec: faults stand at their lines, every field is documented, every example is valid."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fairlead.pools import PoolSpec, parse_spec
from fairlead.schemas.openapi import structural_schema
from fairlead_client.resources.problems import Problem
from fairlead_testing.examples import examples as so_many
from fairlead_web.forms.spec_forms import Faulty, SchemaField, check_spec, examples, fault_of, read_spec, schema_fields
from fairlead_web.text.yaml_text import line_of, yaml_text

SPEC = "model: m\nslo:\n  ttft: soon\nroles:\n- name: both\n  minReplicas: 1\n  maxReplicas: 3\n"
MANIFEST = (
    f"apiVersion: fairlead.dev/v1alpha1\nkind: InferencePool\nmetadata: {{name: a}}\nspec:\n  {SPEC.replace(chr(10), chr(10) + '  ')}"
)


def fault(text: str) -> tuple[int, str]:
    with pytest.raises(Faulty) as caught:
        check_spec(text, read_spec(text))
    return caught.value.fault.line, caught.value.fault.words


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (SPEC, 3, "spec.slo.ttft: 'soon' cannot be used"),
        (MANIFEST, 7, "spec.slo.ttft: 'soon' cannot be used"),
        (SPEC.replace("minReplicas: 1", "minReplicas: 9"), 6, "minReplicas must not be greater than maxReplicas"),
        ("model: m\nslo: {ttft: 1s\n", 3, "This is not valid YAML"),
        ("replicas: 2\n", 1, "spec.model: it is required"),
        ("- a\n- b\n", 1, "Write the fields of a spec"),
        ("model: m\nslo:\n  tfft: 2s\n", 3, "spec.slo.tfft"),
    ],
)
def test_a_fault_stands_at_its_line(text: str, line: int, words: str) -> None:
    assert fault(text)[0] == line
    assert words in fault(text)[1]


def test_the_lines_around_a_fault_are_shown_with_their_numbers() -> None:
    with pytest.raises(Faulty) as caught:
        check_spec(SPEC, read_spec(SPEC))
    assert caught.value.fault.around == ((1, "model: m"), (2, "slo:"), (3, "  ttft: soon"), (4, "roles:"), (5, "- name: both"))


def test_a_refusal_of_the_api_stands_at_its_line_and_one_without_a_field_at_none() -> None:
    problem = Problem(
        type="invalid-input", title="Refused", status=422, detail="spec.slo.ttft: 'soon' cannot be used", field="spec.slo.ttft"
    )
    assert fault_of(MANIFEST, problem).line == 7
    assert fault_of(MANIFEST, Problem(type="pool-exists", title="Conflict", status=409, detail="There is one.")).line == 0


document = st.recursive(
    st.integers() | st.booleans() | st.text("abc", min_size=1),
    lambda inner: (
        st.dictionaries(st.text("abcd", min_size=1, max_size=4), inner, min_size=1, max_size=4) | st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=12,
)


def paths(value: Any, at: str = "") -> list[str]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [(f"{at}[{name}]" if isinstance(name, int) else f"{at}.{name}".removeprefix("."), one) for name, one in inner]
    return [here for path, one in found for here in (path, *paths(one, path))]


@so_many(100)
@given(document=st.dictionaries(st.text("abcd", min_size=1, max_size=4), document, min_size=1, max_size=4))
def test_every_field_of_a_text_has_a_line_and_a_path_below_it_is_not_before_it(document: dict[str, Any]) -> None:
    text = yaml_text(document)
    for path in paths(document):
        line, name = line_of(text, path), path.rpartition(".")[2].partition("[")[0]
        assert path.endswith("]") or f"{name}:" in text.splitlines()[line - 1].replace("'", "").replace('"', "")
        assert line_of(text, f"{path}.none-such") == line


def documented(found: tuple[SchemaField, ...]) -> set[str]:
    return {path for one in found for path in (one.path, *documented(one.inner))}


def in_schema(schema: dict[str, Any], at: str = "") -> set[str]:
    found = set()
    for name, one in schema.get("properties", {}).items():
        path, items = f"{at}.{name}".removeprefix("."), one.get("items", {})
        found |= {path} | in_schema(one, path) | in_schema(items, f"{path}[]")
    return found


def test_every_field_of_the_crd_is_documented() -> None:
    of_templates = ("roles[].template.", "roles[].workerTemplate.")
    assert documented(schema_fields()) == {path for path in in_schema(structural_schema(PoolSpec)) if not path.startswith(of_templates)}
    assert all(one.words for one in schema_fields())


def test_every_example_is_a_spec_that_the_schema_takes() -> None:
    assert examples()[0].words
    assert {"chat-8", "prefill-decode", "scale-to-zero"} <= {one.name for one in examples()}
    for one in examples():
        parse_spec(yaml.safe_load(one.text))
        assert 10 < len(one.words) < 200, one.name
