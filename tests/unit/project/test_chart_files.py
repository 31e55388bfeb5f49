"""The chart's files agree with the code: copies, version, and the metrics that its alerts and dashboard read."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "helm" / "fairlead"
METRICS = ROOT / "docs" / "metrics.md"
MONITORING = ROOT / "docs" / "monitoring.md"
FROM_SCRAPING = {"pod", "exported_job", "job", "le"}
"""Labels that Prometheus adds."""


def test_the_charts_copies_are_what_their_homes_say() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate_chart.py", "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_chart_installs_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"] == project["version"]


MAY_BE_NULL = {"podSecurityContext", "containerSecurityContext", "resources", "replicas", "labels"}
"""Values with a default for which Kubernetes gives null a meaning of its own."""


def values(defaults: dict[str, object], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in defaults.items():
        yield (*at, name)
        if isinstance(value, dict) and name not in MAY_BE_NULL:
            yield from values(value, (*at, name))


def without(defaults: dict[str, object], path: tuple[str, ...]) -> dict[str, object]:
    name, *inner = path
    held = defaults[name]
    changed = {name: without(held, tuple(inner))} if inner and isinstance(held, dict) else {}
    return {key: value for key, value in defaults.items() if key != name} | changed


def test_a_null_is_refused_by_name_for_every_value_that_the_templates_need() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = jsonschema.Draft202012Validator(json.loads((CHART / "values.schema.json").read_text(encoding="utf-8")))
    assert schema.is_valid(defaults)
    refused: set[str] = set()
    taken: set[str] = set()
    for path in values(defaults):
        errors = [error.message for error in schema.iter_errors(without(defaults, path))]
        assert errors in ([], [f"{path[-1]!r} is a required property"]), errors
        (refused if errors else taken).add(".".join(path))
    assert {"router.service.port", "operator.image", "api.web", "database.bundled.storage.size", "monitoring"} <= refused
    for one in taken:
        value = defaults
        for name in one.split("."):
            value = value[name]
        assert not value or isinstance(value, list) or name in MAY_BE_NULL, one


def test_other_variables_of_the_api_are_none_that_the_chart_makes() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]["api"]["properties"]["environment"]
    allowed = jsonschema.Draft202012Validator(schema)
    for name in ("FORWARDED_ALLOW_IPS", "SSL_CERT_FILE", "HTTPS_PROXY"):
        assert allowed.is_valid({name: "value"}), name
    templates = "".join((CHART / "templates" / name).read_text(encoding="utf-8") for name in ("_pods.tpl", "api/deployment.yaml"))
    made = {*re.findall(r'- name: ([A-Z]\w+)|secretVariable" \(list "(\w+)"', templates)}
    names = {"".join(pair) for pair in made} | {"KUBECONFIG", "FAIRLEAD_KEEP_EVENTS_DAYS", "lower_case"}
    assert {"ADMIN_TOKEN", "POSTGRES_PASSWORD", "FAIRLEAD_WEB"} <= names
    assert [name for name in sorted(names) if allowed.is_valid({name: "value"})] == []


def series() -> dict[str, set[str]]:
    """Return the labels of each time series in docs/metrics.md, which another test compares with the code."""
    found: dict[str, set[str]] = {}
    rows = re.findall(r"^\| `((?:fairlead|process)_\w+)` \| (\w+) \| ([^|]*) \|", METRICS.read_text(encoding="utf-8"), re.MULTILINE)
    for name, kind, labels in rows:
        endings = ("_bucket", "_count", "_sum") if kind == "histogram" else ("",)
        found |= {name + ending: set(re.findall(r"\w+", labels)) for ending in endings}
    return found


def expressions() -> Iterator[str]:
    rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text(encoding="utf-8"))
    for group in rules["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for block in re.findall(r"^```promql\n(.*?)^```", MONITORING.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        yield from re.split(r"\n(?! )", block.strip())
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


@pytest.mark.parametrize("expression", list(expressions()))
def test_every_metric_and_label_that_is_read_exists(expression: str) -> None:
    known = series()
    named = re.findall(r"((?:fairlead|process)_\w+)(?:\{([^}]*)\})?", expression)
    assert named
    labels: set[str] = set()
    for name, matchers in named:
        assert name in known, f"{name} is not a metric of any process"
        labels |= known[name]
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
            assert label in known[name], f"{name} has no label {label}"
    for grouped in re.findall(r"by \(([^)]*)\)", expression):
        assert set(re.split(r",\s*", grouped)) <= labels | FROM_SCRAPING, expression
    assert expression.count("(") == expression.count(")")
