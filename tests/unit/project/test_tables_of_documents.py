"""Hand-written tables of the documents name all that the code has, and nothing else."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from fairlead import instances, plausibility, pools, tables
from fairlead.adoption_specs import MOST_BY_DEFAULT
from fairlead.advice.findings import Cause
from fairlead.engine_specs import MAX_ADAPTERS
from fairlead.errors import InvalidInput
from fairlead.pools import parse_spec
from fairlead.role_specs import MAX_ASLEEP, MAX_NODES
from fairlead_api.access import keys
from fairlead_api.audit import views
from fairlead_api.comments import rules as comments
from fairlead_api.webhooks.store.webhooks import MOST_WEBHOOKS
from fairlead_client.resources import simulations
from fairlead_client.resources.plan_kinds import PLAN_KINDS
from fairlead_client.resources.webhooks import NoticeKind
from fairlead_serve.pool_files import MOST_ENGINES
from fairlead_web.pages.help import GLOSSARY

ROOT = Path(__file__).parents[3]
COMPONENTS = ("core", "controlplane", "operator", "router", "serve", "sandbox")
NOT_A_MARK = {"fairlead.dev/v"}
"""The beginning of the API's version, which is no mark."""

LIMITS = {
    "instances of a role": instances.MAX_REPLICAS,
    "`maxReplicas` of a role": MOST_BY_DEFAULT,
    "nodes of an instance": MAX_NODES,
    "instances of a role that sleep": MAX_ASLEEP,
    "characters of a pool's name": pools.MAX_NAME,
    "characters of the name of a pool with several nodes": pools.MAX_NAME_OF_GROUPS,
    "adapters of a pool": MAX_ADAPTERS,
    "priority classes of a pool": tables.MAX_PRIORITY_CLASSES,
    "engines of `fairlead serve`": MOST_ENGINES,
    "data-parallel ranks": plausibility.MOST_RANKS,
    "gateway keys": keys.MOST_KEYS,
    "pools, or models, that a key names": keys.MOST_SCOPES,
    "webhooks": MOST_WEBHOOKS,
    "comments of a person": comments.MOST_OWN,
    "saved views of a person": views.MOST_OWN,
    "instances of a simulated pool": simulations.MOST_INSTANCES,
    "requests of a simulation": simulations.MOST_REQUESTS,
    "rows of an uploaded trace": simulations.MOST_UPLOADED,
}
"""The beginning of each row of docs/limits.md, with the constant that the row describes."""


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def first_cells(text: str) -> list[str]:
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    return [cell for cell in rows if cell != "---"]


def test_every_mark_of_the_code_is_in_the_table_of_labels_and_no_other() -> None:
    sources = [path.read_text(encoding="utf-8") for folder in COMPONENTS for path in (ROOT / folder).rglob("*.py")]
    written = {mark for text in sources for mark in re.findall(r"\"(fairlead\.dev/[a-z-]+)\"", text)} - NOT_A_MARK
    assert len(written) > 20
    assert set(re.findall(r"`(fairlead\.dev/[a-z-]+)`", page("labels"))) == written


def test_a_template_may_have_the_marks_that_the_table_says_and_no_other() -> None:
    """Any other mark would be on every new pod; a pod with a drain request is replaced at once, without end."""
    rows = [line.split("|") for line in page("labels").split("## On a pool")[0].splitlines() if line.startswith("| `fairlead")]
    marks = {mark: row for row in rows for mark in re.findall(r"`(fairlead\.dev/[a-z-]+)`", row[1])}
    assert len(marks) > 15
    for mark, row in marks.items():
        part = f"{row[2].strip()}s"
        template = {"metadata": {part: {mark: "x"}}, "spec": {"containers": [{"name": "engine", "image": "i"}]}}
        document = {"model": "m", "roles": [{"name": "both", "template": template}]}
        if "**a template**" in row[3]:
            parse_spec(document)
        else:
            with pytest.raises(InvalidInput, match=mark):
                parse_spec(document)


def test_the_glossary_has_every_word_of_the_web_ui_and_is_sorted() -> None:
    words = first_cells(page("glossary"))[1:]
    assert words == sorted(words, key=str.lower)
    assert {word for word, _ in GLOSSARY} - {"In time"} <= set(words), "the page Help explains a word that the glossary lacks"


def test_the_versions_that_are_wanted_are_those_of_the_chart_and_the_package() -> None:
    rows = {line.split("|")[1].strip(): line for line in page("supported-versions").splitlines() if line.startswith("| ")}
    chart = (ROOT / "helm" / "fairlead" / "Chart.yaml").read_text(encoding="utf-8")
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    matrix = re.search(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8"))
    assert matrix is not None
    assert f"{re.search(r'>=([0-9.]+)[.]0-0', chart)[1]} or newer" in rows["Kubernetes"]  # type: ignore[index]
    assert f"{package['requires-python'].removeprefix('>=')} to" in rows["Python"]
    assert all(version.strip(' "') in rows["Python"] for version in matrix[1].split(","))


@pytest.mark.parametrize("name", ["ten-minutes", "serve", "on-my-cluster", "which-policy", "life-of-a-request"])
def test_each_first_page_has_commands_and_a_test_that_runs_them(name: str) -> None:
    assert "```console\n$ " in page(name)
    runners = [
        (ROOT / "tests/e2e/sandbox" / test).read_text(encoding="utf-8")
        for test in ("test_first_pages.py", "test_serve.py", "test_chart.py")
    ]
    assert any(f"docs/{name}.md" in text and "run_commands(" in text for text in runners)


def rows_below(name: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    below = page(name).split(f"# {heading}\n", 1)[1]
    rows = below[below.index("|") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows]


def test_a_fixed_limit_is_the_number_of_the_code() -> None:
    told = {row[0]: int(row[1].replace(",", "")) for row in rows_below("limits", "Fixed limits")}
    of_code = {row: next((limit for begin, limit in reversed(LIMITS.items()) if row.startswith(begin)), None) for row in told}
    assert len(told) == len(LIMITS)
    assert told == of_code


def test_the_ports_are_those_of_the_chart() -> None:
    files = ("router/statefulset", "api/deployment", "operator/deployment", "database/bundled")
    templates = "".join((ROOT / "helm/fairlead/templates" / f"{name}.yaml").read_text(encoding="utf-8") for name in files)
    of_chart = set(re.findall(r"containerPort: (?:\{\{ add )?(\d+)", templates))
    assert {row[1].split()[0] for row in rows_below("install", "Ports")} == of_chart


def test_an_address_of_ours_is_in_the_releases_namespace_at_a_port_of_a_service() -> None:
    """The chart's Services, in the namespace into which the documents install."""
    values = yaml.safe_load((ROOT / "helm" / "fairlead" / "values.yaml").read_text(encoding="utf-8"))
    ports = {
        ("router", values["router"]["service"]["port"]),
        ("api", values["api"]["service"]["port"]),
        ("kv-events", values["router"]["kvEvents"]["port"]),
        ("autoscalers", 9090),
    }
    shown = [
        found
        for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.yaml")]
        for found in re.findall(r"\bfairlead-([a-z-]+)\.([a-z-]+)(?:\.svc[a-z.]*)?:(\d+)", path.read_text(encoding="utf-8"))
    ]
    assert len(shown) > 3
    assert [one for one in shown if one[1] != "fairlead-system" or (one[0], int(one[2])) not in ports] == []


def test_plans_have_each_kind_with_its_role() -> None:
    told = {kind: row[2].split()[0] for row in rows_below("plans", "What can be planned") for kind in re.findall(r"`([^`]+)`", row[0])}
    assert told == {kind.value: kind.facts.role.value for kind in PLAN_KINDS}


def test_notices_have_each_kind() -> None:
    kinds = re.findall(r"^\| `([a-z.-]+)` \|", page("notices").split("## ")[0], re.MULTILINE)
    assert sorted(kinds) == sorted(NoticeKind)


def test_advice_has_each_cause() -> None:
    causes = re.findall(r"^\| `([A-Z]\w+)` \|", page("advice"), re.MULTILINE)
    assert sorted(causes) == sorted(Cause)
