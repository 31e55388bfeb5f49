"""Every document names only existing things: metrics, fields, values of the chart, paths of the API, files,
identifiers.

Generated pages and decision records are read too, except for identifiers: a record describes the code of its day.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from fairlead.pools import parse_spec

ROOT = Path(__file__).parents[3]
FILES = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
DOCUMENTS = [name for name in FILES if name.endswith(".md")]
FENCE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
OF_OTHERS = {
    *("override_host", "message_timeout", "remote_bootstrap_addr", "transfer_id", "verbose_json"),
    *("failOpen", "gatewayClassName", "speculativeIndexing", "sessionKey", "prefixaware", "kvaware", "roundrobin", "cache_aware"),
    *("FullDuplexStreamed", "MooncakeConnector", "horizontalPodAutoscalerConfig", "extensionManager", "backendResources"),
    *("modelSpec", "modelURL", "replicaCount", "routerSpec", "enableRouter", "routingLogic", "servingEngineSpec", "vllmApiKey"),
    *(
        "inferenceExtension",
        "gitMajor",
        "gitMinor",
        "reproduce_failure",
        "tcp_migrate_req",
        "process_max_fds",
        "process_virtual_memory_bytes",
    ),
}
"""Identifiers of other projects, which this code does not mention."""
FORMER = {"late_lost", "coding_agents_short"}
"""Names of earlier versions, which docs/experiments.md describes."""
WRITTEN_LATER = {"tests/contract/skew/last_release_database.json"}
"""Files that the first release creates."""
FOLDERS_OF_OTHERS = {"examples/inference-pool", "helm/templates"}
ABSENT = {"spec.resourceClaims", "spec.containers[].image", "spec.containers[].name", "spec.unschedulable"}
ABSENT |= {"spec.behavior.scaleUp.tolerance", "status.storedVersions"}
"""Fields of Kubernetes' own objects."""


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def prose_of(name: str) -> str:
    return FENCE.sub("", text_of(name))


def blocks(name: str, language: str) -> Iterator[Any]:
    for found, block in FENCE.findall(text_of(name)):
        if found == language:
            yield from yaml.safe_load_all(block)


@cache
def metrics() -> frozenset[str]:
    return frozenset(re.findall(r"^\| `(fairlead_\w+)`", text_of("docs/metrics.md"), re.MULTILINE))


@cache
def schemas() -> dict[str, Any]:
    documents = [yaml.safe_load(text_of(name)) for name in FILES if re.fullmatch(r"crds/.*\.yaml", name)]
    return {one["spec"]["names"]["kind"]: one["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for one in documents}


def has_field(schema: dict[str, Any], path: list[str]) -> bool:
    if not path or schema.get("x-kubernetes-preserve-unknown-fields"):
        return True
    if "items" in schema:
        return has_field(schema["items"], path)
    if path[0] in (fields := schema.get("properties", {})):
        return has_field(fields[path[0]], path[1:])
    values = schema.get("additionalProperties")
    return isinstance(values, dict) and has_field(values, path[1:])


def is_field(name: str) -> bool:
    path = [re.sub(r"\[.*?\]", "", part) for part in name.split(".")]
    return any(has_field(schema, path) for schema in schemas().values())


def strange_metrics(text: str) -> set[str]:
    full = set(re.findall(r"`(fairlead_(?:router|api|operator|web|source|log)_[a-z0-9_]*[a-z0-9])\b(?![./])", text))
    ends = set(re.findall(r"`…(_[a-z0-9_]+)`", text))
    known = metrics()
    of_histogram = re.compile(r"_(bucket|sum|count)$")
    return {one for one in full if one not in known and of_histogram.sub("", one) not in known} | {
        one for one in ends if not any(name.endswith(one) for name in known)
    }


def strange_fields(text: str) -> set[str]:
    return {
        name
        for name in re.findall(r"`((?:spec|status)\.[A-Za-z][A-Za-z.\[\]]*[A-Za-z\]])", text)
        if name not in ABSENT and not is_field(name)
    }


@cache
def operations() -> frozenset[tuple[str, str]]:
    paths = json.loads(text_of("docs/openapi.json"))["paths"]
    return frozenset((method.upper(), re.sub(r"\{[^}]*\}", "{}", path)) for path, methods in paths.items() for method in methods)


def strange_paths(text: str) -> set[str]:
    """Return unknown paths of the control API, with their method; `test_gateway_page.py` checks the gateway's own
    paths.
    """
    found = set()
    for method, path in re.findall(r"\b(GET|POST|PUT|PATCH|DELETE) (/v1/[^\s`?\"')|]*)", text):
        plain = re.sub(r"\{[^}]*\}|[A-Z][A-Z_]+|<[^>]*>|\$\w+", "{}", path).rstrip(".,;:")
        if "…" not in plain and (method, plain) not in operations() and not _of_engines(plain):
            found.add(f"{method} {path}")
    return found


def _of_engines(path: str) -> bool:
    return path.split("/")[2] in {"models", "responses", "completions", "chat", "messages", "embeddings", "audio"}


TWO_WORDS = re.compile(r"\w*[a-z](?:_[a-z]|[A-Z][a-z])\w*")
"""An identifier of two words or more, as `lost_moves` and `InstancesLost`: a shorter one may be English."""


@cache
def known_identifiers() -> frozenset[str]:
    """Return every word of the sources, of their file names and of the metrics, and those of other projects."""
    sources = [
        name
        for name in FILES
        if not name.endswith(Path(__file__).name) and name.endswith((".py", ".yaml", ".html", ".js", ".sh", ".toml", ".tpl", ".txt"))
    ]
    words = {word for name in sources for word in re.findall(r"\w+", text_of(name))}
    return frozenset(words | {Path(name).stem for name in FILES} | metrics() | OF_OTHERS | FORMER)


def strange_identifiers(text: str) -> set[str]:
    names = {one for code in INLINE.findall(text) for one in re.findall(r"\w+", code) if TWO_WORDS.fullmatch(one)}
    return {one for one in names - known_identifiers() if not any(one in name for name in metrics())}


@cache
def shown_by_pages() -> str:
    """Return the texts that pages may show, in lower case, with the headings and columns of documents and commands."""
    sources = [
        name for name in FILES if name.startswith(("webui/", "core/fairlead_client/", "cli/")) and name.endswith((".py", ".html", ".js"))
    ]
    headings = [
        line for name in DOCUMENTS for line in re.findall(r"^#+ (.*)$|^- \*\*(.*?)\*\*|^\*\*(.*?)\*\*", text_of(name), re.MULTILINE)
    ]
    return re.sub(r"…|\s+", " ", " ".join([*map(text_of, sources), *(" ".join(found) for found in headings)])).lower()


def strange_labels(text: str) -> set[str]:
    """Return unknown names of buttons, pages and sections, which the documents write as *Edit…*."""
    plain = re.sub(r"`[^`]*`|\*\*[^*]*\*\*", " ", text)
    named = {re.sub(r"\s+", " ", label) for label in re.findall(r"(?<![\w*])\*([A-Z][^*]{2,50}[^.*])\*(?![\w*])", plain)}
    return {label for label in named if re.sub(r"…|\s+", " ", label).strip().lower() not in shown_by_pages() and label != "Deprecated"}


@cache
def places() -> frozenset[str]:
    """Return every file and folder, by path."""
    return frozenset(FILES) | {folder.as_posix() for name in FILES for folder in Path(name).parents}


def strange_files(text: str) -> set[str]:
    tops = "|".join(sorted(one for one in places() if "/" not in one and one not in {".", "cluster"} and one not in FILES))
    named = {one.rstrip("/") for one in re.findall(rf"`((?:{tops})/[\w./-]*)`", text)}
    return {one for one in named - places() if not one.endswith("__init__.py") and one not in WRITTEN_LATER | FOLDERS_OF_OTHERS}


@pytest.mark.parametrize(
    ("strange", "among"),
    [
        (strange_metrics, DOCUMENTS),
        (strange_fields, DOCUMENTS),
        (strange_paths, DOCUMENTS),
        (strange_identifiers, [name for name in DOCUMENTS if "/decisions/" not in name]),
        (strange_files, [name for name in DOCUMENTS if "/decisions/" not in name and not name.startswith("cluster/")]),
        (strange_labels, [name for name in DOCUMENTS if "/decisions/" not in name and name != "docs/benchmarks.md"]),
    ],
    ids=["metrics", "fields", "paths of the API", "identifiers", "files", "labels of pages"],
)
def test_a_document_names_only_what_exists(strange: Any, among: list[str]) -> None:
    found = {name: strange(prose_of(name)) for name in among}
    assert {name: names for name, names in found.items() if names} == {}


PRODUCT = ("core/", "controlplane/", "operator/", "router/", "webui/", "simulator/", "sandbox/", "serve/", "cli/", "host/")
TRIPLE = re.compile(r'"""(.*?)"""', re.DOTALL)
QUOTED_BY_DOCSTRINGS = {
    *("ComputeAllocationHandler", "allocation_json", "AuthorizationOptions", "DelegatingAuthenticationOptions", "NoProxy", "useProxy"),
    *("_run_output_handler", "check_memory", "should_continue_final_message", "_base_client", "mooncake_trace", "podCacheSize"),
    *("load_lora_adapter", "reset_prefix_cache", "scale_elastic_ep", "sliding_window", "DeletionCandidateOfClusterAutoscaler"),
    *("kubectl_complete", "routerMemory", "test_bounded_clients", "test_uvicorn_internals", "synchronous_commit"),
}
"""Names of other projects' code, of the chart's templates and of tests."""


def test_a_docstring_names_only_what_exists() -> None:
    sources = {name: text_of(name) for name in FILES if name.startswith((*PRODUCT, "cluster/")) and name.endswith(".py")}
    others = [text_of(name) for name in FILES if name.startswith(PRODUCT) and name.endswith((".html", ".js", ".toml"))]
    written = "\n".join([*(TRIPLE.sub("", text) for text in sources.values()), *others])
    stems = {part for name in FILES for part in Path(name).with_suffix("").parts}
    known = stems | set(re.findall(r"\w+", written)) | metrics() | QUOTED_BY_DOCSTRINGS
    found = {
        (name, one)
        for name, text in sources.items()
        if name.startswith(PRODUCT)
        for docstring in TRIPLE.findall(text)
        for code in INLINE.findall(docstring)
        for one in re.findall(r"\w+", code)
        if TWO_WORDS.fullmatch(one) and one not in known and not one.endswith("_") and not is_in_schemas(one)
    }
    assert found == set()


def is_in_schemas(name: str) -> bool:
    return any(name in text_of(file) for file in FILES if re.fullmatch(r"crds/.*\.yaml", file))


def pools(name: str) -> Iterator[dict[str, Any]]:
    """Yield the specs of pools, whole or in part, without other kinds and autoscalers."""
    for document in blocks(name, "yaml"):
        kind = isinstance(document, dict) and (
            document.get("apiVersion", "fairlead.dev").split("/")[0],
            document.get("kind", "InferencePool"),
        )
        if kind == ("fairlead.dev", "InferencePool") and isinstance(document.get("spec"), dict):
            yield document["spec"]


MENDED = {"engine": {"type": "simulated"}, "model": "m"}
"""Required fields that a fragment omits because it is about another subject."""


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if any(True for _ in pools(name))])
def test_an_example_of_a_pool_is_accepted(name: str) -> None:
    for spec in pools(name):
        if "advanced" not in spec:  # of KEDA's ScaledObject
            parse_spec(_whole(spec))


def _whole(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a fragment with all fields that every pool must have."""
    whole = {"model": "m", **spec}
    roles = whole.get("roles", [])
    made_elsewhere = any("template" in role or "selector" in role for role in roles)
    if not made_elsewhere and whole.get("engine", {}).get("type", "simulated") != "simulated":
        template = {"spec": {"containers": [{"name": "engine", "image": "i"}]}}
        whole["roles"] = [{**role, "template": template} for role in roles or [{"name": "both"}]]
    least = max((role.get("minReplicas", 0) for role in roles), default=0)
    return whole if "replicas" in whole or len(roles) > 1 or least < 2 else {**whole, "replicas": least}


def schema_without_demands() -> dict[str, Any]:
    """Return the schema of the chart's values without required fields; values that a page omits have the chart's
    default.
    """
    text = text_of("helm/fairlead/values.schema.json")
    schema: dict[str, Any] = json.loads(text, object_hook=lambda one: {key: part for key, part in one.items() if key != "required"})
    return schema


def values_shown() -> Iterator[tuple[str, dict[str, Any]]]:
    keys = set(yaml.safe_load(text_of("helm/fairlead/values.yaml")))
    for name in DOCUMENTS:
        for document in blocks(name, "yaml"):
            if isinstance(document, dict) and set(document) <= keys:
                yield name, document


def test_an_example_of_values_is_accepted_by_the_chart() -> None:
    shown = list(values_shown())
    assert len(shown) > 5
    validator = jsonschema.Draft202012Validator(schema_without_demands())
    faults = [(name, error.message) for name, values in shown for error in validator.iter_errors(values)]
    assert faults == []


@pytest.mark.parametrize(
    ("strange", "text", "found"),
    [
        (strange_metrics, "`fairlead_router_helt` `…_engine_stills` `fairlead_router_held`", {"fairlead_router_helt", "_engine_stills"}),
        (strange_fields, "`spec.drain.timeOut` `spec.roles[].warm.asleep: 2`", {"spec.drain.timeOut"}),
        (strange_paths, "`GET /v1/plan/{id}` `GET /v1/plans/ID` `GET /v1/models`", {"GET /v1/plan/{id}"}),
        (strange_identifiers, "`lost_moves_per_hour` `InstancesLost` `lost_moves`", {"lost_moves_per_hour"}),
        (strange_labels, "*Take back the drain…* *Cancel the drain…* *Nodes that leave*", {"Take back the drain…"}),
        (strange_files, "`core/fairlead/pool.py` `core/fairlead/pools.py` `helm/fairlead`", {"core/fairlead/pool.py"}),
    ],
)
def test_what_does_not_exist_is_found(strange: Any, text: str, found: set[str]) -> None:
    assert strange(text) == found
