"""The CRD: generated, structural, and in agreement with `parse_spec`; a Kubernetes API accepts the good
examples and refuses the bad.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from fairlead.crds import custom_resource_definition, role_definition
from fairlead.errors import InvalidInput
from fairlead.pools import PoolSpec, parse_spec
from fairlead.schemas.openapi import structural_schema
from fairlead_testing.examples import examples
from fairlead_testing.running.operator_process import POOLS, ROOT, running_kubernetes_api
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.clients import KubernetesClient

CRD = ROOT / "crds" / "inferencepools.fairlead.dev.yaml"
GOOD = sorted((ROOT / "examples").glob("*.yaml"))
BAD = sorted((ROOT / "examples" / "invalid").glob("*.yaml"))

REFUSALS = {
    "schema-error": "spec.replicas",
    "unknown-field": "spec.replica",
    "cel-error": "replicas must not be greater than roles[].maxReplicas",
    "replicas-of-two-roles": "replicas is only for the role both; leave it out, and write roles[].replicas for prefill and decode",
    "half-a-pair": "roles must be exactly both, or exactly prefill and decode",
    "sglang-of-two-roles": "engine.type sglang takes only the role both",
    "gateway-of-two-roles": "gateway.failureMode FailOpen needs the role both",
    "missing-template": "roles[].template or selector is required unless engine.type is simulated",
    "template-and-selector": "roles[].template cannot be combined with roles[].selector",
    "empty-selector": "selector must not be empty",
    "nodes-without-template": "roles[].nodes above 1 needs roles[].template",
    "worker-of-one-node": "roles[].workerTemplate is only for roles[].nodes above 1",
    "long-name-of-groups": "metadata.name must be at most 43 characters where roles[].nodes is above 1",
}
TEMPLATE = {"spec": {"containers": [{"name": "engine", "image": "vllm:1"}]}}


def engine_with(**container: Any) -> dict[str, Any]:
    """Return a spec whose pod template has these fields in its container."""
    return {"roles": [{"name": "both", "template": {"spec": {"containers": [{"name": "engine", "image": "vllm:1", **container}]}}}]}


REFUSED_BY_THE_OPERATOR = {"bad-parameter-type", "unknown-policy", "zero-slo"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesClient]:
    with running_kubernetes_api(tmp_path_factory.mktemp("kubernetes")) as kubeconfig:
        yield KubernetesClient.of(kubeconfig)


def document(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def schemas(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema inside a schema, with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from schemas(inner, f"{path}.{name}")
    if "items" in schema:
        yield from schemas(schema["items"], f"{path}[]")


def test_the_committed_crd_is_what_the_types_generate() -> None:
    result = subprocess.run([sys.executable, ROOT / "scripts" / "generate_crds.py", "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_every_field_of_the_spec_is_typed_and_described_and_nothing_unknown_is_kept() -> None:
    for path, schema in schemas(structural_schema(PoolSpec)):
        assert "type" in schema, path
        if ".template" in path or ".workerTemplate" in path:
            continue
        assert path == "" or path.endswith("[]") or schema.get("description"), path
        assert path in {".routing.parameters", ".routing.shadows[].parameters"} or "x-kubernetes-preserve-unknown-fields" not in schema, (
            path
        )


def test_every_default_satisfies_its_own_schema() -> None:
    for path, schema in schemas(structural_schema(PoolSpec)):
        if "default" in schema:
            assert Draft202012Validator(schema).is_valid(schema["default"]), path


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def test_a_strict_api_takes_the_definition(client: KubernetesClient) -> None:
    taken = client.call("GET", f"{DEFINITIONS}/inferencepools.fairlead.dev")
    assert {one["type"]: one["status"] for one in taken["status"]["conditions"]} == {"NamesAccepted": "True", "Established": "True"}
    crd = document(CRD)
    crd["metadata"]["resourceVersion"] = taken["metadata"]["resourceVersion"]
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    url = f"{client.server}{DEFINITIONS}/inferencepools.fairlead.dev"
    answer = client.session.put(url, json=crd, params=query, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200, answer.text


def test_a_strict_api_refuses_the_default_of_the_roles_that_left_out_what_their_rule_reads(client: KubernetesClient) -> None:
    crd = document(CRD)
    roles = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["roles"]
    roles["default"] = [{"name": "both"}]
    headers = {"Content-Type": "application/merge-patch+json"}
    url = f"{client.server}{DEFINITIONS}/inferencepools.fairlead.dev"
    answer = client.session.patch(url, json={"spec": crd["spec"]}, headers=headers, params={"dryRun": "All"}, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 422
    assert 'properties[roles].default[0]: Invalid value: "object": no such key: minReplicas' in answer.json()["message"]


def without_nested_defaults(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    """Yield the fields that a rule would miss in a default, as a default is taken as it is written."""
    if isinstance(value, list):
        for item in value:
            yield from without_nested_defaults(schema["items"], item, f"{path}[]")
    elif isinstance(value, dict) and "x-kubernetes-validations" in schema:
        yield from (f"{path}.{name}" for name, inner in schema["properties"].items() if "default" in inner and name not in value)


def test_the_default_of_the_roles_is_written_out_because_their_rule_reads_it() -> None:
    roles = structural_schema(PoolSpec)["properties"]["roles"]
    assert list(without_nested_defaults(roles, roles["default"], "roles")) == []
    assert roles["default"] == [{"name": "both", "minReplicas": 0, "maxReplicas": 64}]


YAML_WORDS = {"true", "false", "yes", "no", "on", "off", "y", "n", "null", "~", ""}
"""Texts that some YAML reader takes for another type (YAML 1.1, which kubectl reads)."""


def test_no_word_of_an_enumeration_needs_quotes_in_yaml() -> None:
    for path, schema in schemas(document(CRD)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]):
        if path == ".status.conditions[].status":
            continue  # Kubernetes' own words, which no person writes
        for word in schema.get("enum", ()):
            assert word.lower() not in YAML_WORDS, path
            assert yaml.safe_load(word) == word, path


specs = st.fixed_dictionaries(
    {"model": st.sampled_from(["m", "a/b", "two words", ""])},
    optional={
        "replicas": st.integers(-1, 5) | st.just("3"),
        "roles": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from(["both", "prefill"])}, optional={"minReplicas": st.integers(-1, 3)}), max_size=2
        ),
        "slo": st.fixed_dictionaries({}, optional={"ttft": st.sampled_from(["5s", "5", "1h", "x"]), "percentile": st.integers(0, 101)}),
        "routing": st.fixed_dictionaries({}, optional={"policy": st.sampled_from(["ear", "nope"]), "blockTokens": st.integers(0, 3)}),
        "earlyRejection": st.fixed_dictionaries(
            {},
            optional={
                "mode": st.sampled_from(["Disabled", "Off", "Load"]) | st.booleans(),
                "headroom": st.floats(0, 101) | st.integers(0, 2),
            },
        ),
        "engine": st.fixed_dictionaries(
            {}, optional={"port": st.integers(0, 70000), "metrics": st.fixed_dictionaries({"path": st.text(max_size=3)})}
        ),
    },
)


@examples(300)
@given(specs)
def test_what_the_core_accepts_the_schema_accepts(spec: dict[str, Any]) -> None:
    try:
        parse_spec(spec)
    except InvalidInput:
        return
    assert list(Draft202012Validator(structural_schema(PoolSpec)).iter_errors(spec)) == []


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_the_good_examples_are_accepted_and_read(path: Path, client: KubernetesClient) -> None:
    stored = client.call("POST", POOLS + "?fieldValidation=Strict", document(path))
    spec = parse_spec(stored["spec"])
    assert spec == parse_spec(document(path)["spec"]), "the API's defaults are the core's"


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_the_bad_examples_are_refused_by_name(path: Path, client: KubernetesClient) -> None:
    response = client.session.post(client.server + POOLS + "?fieldValidation=Strict", json=document(path), timeout=PATIENCE_SECONDS)
    if path.stem in REFUSED_BY_THE_OPERATOR:
        assert response.status_code == 201
        return
    assert response.status_code in {400, 422}
    assert REFUSALS[path.stem] in response.json()["message"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("a" * 53, "at most 52 characters"), ("0chat", "must start with a letter"), ("chat.v2", "must start with a letter")],
)
def test_a_name_no_pod_could_bear_is_refused(name: str, message: str, client: KubernetesClient) -> None:
    body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "InferencePool", "metadata": {"name": name}, "spec": {"model": "m"}}
    response = client.session.post(client.server + POOLS, json=body, timeout=PATIENCE_SECONDS)
    assert response.status_code == 422
    assert message in response.json()["message"]


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"model": "other"}, "model cannot be changed"),
        (
            {"engine": {"type": "vllm"}, "roles": [{"name": "both", "template": TEMPLATE}]},
            "engine.type cannot be changed",
        ),
        ({"engine": {"type": "vllm", "simulated": {}}}, "only for engine.type simulated"),
        ({"roles": [{"name": "both", "minReplicas": 5, "maxReplicas": 4}]}, "minReplicas must not be greater than maxReplicas"),
        ({"roles": [{"name": "prefill"}, {"name": "decode"}]}, "roles cannot change between both and prefill with decode"),
        ({"roles": [{"name": "both", "minReplicas": 2}]}, "replicas must not be less than roles[].minReplicas"),
        ({"roles": [{"name": "both", "template": {"spec": {"containers": []}}}]}, "containers"),
    ],
)
def test_a_change_against_a_rule_is_refused_with_its_sentence(patch: dict[str, Any], message: str, client: KubernetesClient) -> None:
    name = "ruled"
    if not client.session.get(f"{client.server}{POOLS}/{name}", timeout=PATIENCE_SECONDS).ok:
        body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "InferencePool", "metadata": {"name": name}, "spec": {"model": "m"}}
        client.call("POST", POOLS, body)
    response = client.session.patch(
        f"{client.server}{POOLS}/{name}",
        json={"spec": patch},
        headers={"Content-Type": "application/merge-patch+json"},
        timeout=PATIENCE_SECONDS,
    )
    assert response.status_code == 422
    assert message in response.json()["message"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"earlyRejection": {"mode": "Off"}},
            'spec.earlyRejection.mode: Unsupported value: "Off": supported values: "Disabled", "Load", "Predicted"',
        ),
        ({"earlyRejection": {"mode": False}}, "spec.earlyRejection.mode in body must be of type string"),
        ({"earlyRejection": {"headroom": 0}}, "write a number from 0.01 to 100"),
        ({"engine": {"simulated": {"timeScale": 0}}}, "write a number from 0.001 to 10000"),
        (engine_with(env={"A": "b"}), "spec.roles[0].template.spec.containers[0].env in body must be of type array"),
        (engine_with(ports={"http": 8000}), "spec.roles[0].template.spec.containers[0].ports in body must be of type array"),
        (engine_with(env=["A=b"]), "spec.roles[0].template.spec.containers[0].env[0] in body must be of type object"),
        (
            {"roles": [{"name": "both", "template": {**TEMPLATE, "metadata": {"labels": ["team"]}}}]},
            "spec.roles[0].template.metadata.labels in body must be of type object",
        ),
        (engine_with(readinessProbe=[]), "spec.roles[0].template.spec.containers[0].readinessProbe in body must be of type object"),
    ],
)
def test_a_value_the_operator_would_refuse_is_refused_by_the_api(spec: dict[str, Any], message: str, client: KubernetesClient) -> None:
    body: dict[str, Any] = {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": "refused"},
        "spec": {"model": "m", **spec},
    }
    response = client.session.post(client.server + POOLS, json=body, timeout=PATIENCE_SECONDS)
    assert response.status_code == 422
    assert message in response.json()["message"]
    with pytest.raises(InvalidInput):
        parse_spec(body["spec"])


def test_nulls_in_a_template_are_taken_for_nothing(client: KubernetesClient) -> None:
    spec = {"model": "m", **engine_with(env=None, ports=None, readinessProbe=None)}
    body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "InferencePool", "metadata": {"name": "nulls"}, "spec": spec}
    stored = client.call("POST", POOLS, body)
    assert stored["spec"]["roles"][0]["template"] == engine_with()["roles"][0]["template"]
    assert parse_spec(spec).roles[0].name == "both"


def test_the_scale_subresource_and_the_printer_columns_work(client: KubernetesClient) -> None:
    body = {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": "columns"},
        "spec": {"model": "m", "replicas": 3},
    }
    spec = client.call("POST", POOLS, body)["spec"]
    slo = {"ttft": "2s", "attainment": 0.987}
    status = {"desired": 3, "replicas": 2, "serving": 1, "selector": "fairlead.dev/pool=columns", "slo": slo, "specInForce": {"spec": spec}}
    status["conditions"] = [
        {"type": "Ready", "status": "False", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ]
    client.merge(f"{POOLS}/columns/status", {"status": status})
    scale = client.call("GET", f"{POOLS}/columns/scale")
    assert (scale["spec"]["replicas"], scale["status"]["replicas"], scale["status"]["selector"]) == (3, 2, "fairlead.dev/pool=columns")
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = client.session.get(f"{client.server}{POOLS}/columns", headers=accept, timeout=PATIENCE_SECONDS).json()
    named = [(column["name"], column["priority"]) for column in table["columnDefinitions"]]
    short, wide = ["Name", "Ready", "Desired", "Serving", "Policy", "SLO", "Age"], ["Present", "Attainment", "Model", "Reason"]
    assert named == [*((name, 0) for name in short), *((name, 1) for name in wide)]
    cells = table["rows"][0]["cells"]
    assert (cells[:6], cells[7:]) == (["columns", "False", 3, 1, "fairlead", "2s"], [2, 0.987, "m", "R"])


@pytest.mark.parametrize("made", [custom_resource_definition, role_definition])
def test_no_column_shows_what_a_schedule_or_a_refusal_keeps_from_being_in_force(made: Callable[[], dict[str, Any]]) -> None:
    [version] = made()["spec"]["versions"]
    declared = {column["jsonPath"] for column in version["additionalPrinterColumns"] if column["jsonPath"].startswith(".spec")}
    assert declared <= {".spec.model", ".spec.pool", ".spec.role", ".spec.replicas", ".spec.pinned"}, "it is said beside what is in force"
