"""Tables of the documents that nobody generates: they name what the code has, and leave nothing out."""

import re
import tomllib
from pathlib import Path

import pytest

from fairlead.errors import InvalidInput
from fairlead.pools import parse_spec
from fairlead_web.pages.help import GLOSSARY

ROOT = Path(__file__).parents[3]
COMPONENTS = ("core", "controlplane", "operator", "router", "serve", "sandbox")
NOT_A_MARK = {"fairlead.dev/v"}
"""The beginning of the API's version."""


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
    """Any other would be on every new pod: one with a request to drain is replaced at once, for ever."""
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
