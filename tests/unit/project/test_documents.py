"""Documents: links lead somewhere, indexes are complete, and lines fit a screen."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted(ROOT / name for name in subprocess.check_output(["git", "ls-files", "*.md"], cwd=ROOT, text=True).splitlines())
GENERATED = {f"docs/{name}.md" for name in ("benchmarks", "cli", "inferencepool", "metrics", "settings")}
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)]+)\)")
"""A link of Markdown, including one whose target is broken over two lines."""


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


def anchors(document: Path) -> set[str]:
    """Return headings as GitHub links to them: lower case, punctuation dropped, spaces as hyphens."""
    headings = re.findall(r"^#+ +(.+?) *$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-") for heading in headings}


def test_documents_are_found() -> None:
    assert {"README.md", "docs/README.md", "docs/decisions/README.md"} <= {name_of(document) for document in DOCUMENTS}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_of_a_document_leads_somewhere(document: Path) -> None:
    broken = []
    for link in LINK.findall(CODE.sub("", document.read_text())):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("folder", ["docs", "docs/decisions"])
def test_an_index_leaves_no_page_out(folder: str) -> None:
    index = (ROOT / folder / "README.md").read_text()
    pages = {page.name for page in (ROOT / folder).glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()


@pytest.mark.parametrize("document", [one for one in DOCUMENTS if name_of(one) not in GENERATED], ids=name_of)
def test_prose_fits_a_screen(document: Path) -> None:
    """Tables, code and links cannot be broken; every other line can."""
    prose = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL).splitlines()
    assert [line for line in prose if len(line) > 120 and not line.lstrip().startswith(("|", "<", "![", "- ["))] == []
