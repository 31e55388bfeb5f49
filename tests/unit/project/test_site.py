"""The site of the documents: it has all documents, its links are resolved, and the API's reference is its document."""

import json
from pathlib import Path

import pytest
from docs.site.api_reference import NOT_FOR_PEOPLE, pages
from docs.site.checking import faults_of
from docs.site.staging import DIAGRAMS, diagram_name, diagrams, stage

ROOT = Path(__file__).parents[3]
DOCUMENT = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "sources"
    stage(ROOT, folder)
    return folder


def test_every_document_is_in_the_site_and_in_its_contents(staged: Path) -> None:
    contents = (staged / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert (staged / "docs" / page.name).is_file()
        assert page.name == "README.md" or f"\ndocs/{page.stem}\n" in contents, page.name
    assert ":caption: First pages" in contents


def test_a_diagram_is_the_picture_that_was_drawn_of_its_present_text() -> None:
    wanted = {diagram_name(text) for page in (ROOT / "docs").rglob("*.md") for text in diagrams(page.read_text(encoding="utf-8"))}
    assert wanted == {path.name for path in (ROOT / DIAGRAMS).iterdir()}, "draw it: scripts/draw_diagrams.py"


def test_the_reference_has_every_path_for_people_and_none_of_processes() -> None:
    reference = "\n".join(pages(DOCUMENT).values())
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            assert (f"## {method.upper()} `{path}`\n" in reference) == (NOT_FOR_PEOPLE not in operation["tags"]), path


def test_the_reference_has_every_schema_that_it_links_to() -> None:
    found = pages(DOCUMENT)
    named = {line.removeprefix("## ").lower() for line in found["schemas.md"].splitlines() if line.startswith("## ")}
    linked = {part.partition(")")[0] for text in found.values() for part in text.split("schemas.md#")[1:]}
    assert linked == named


PAGE = '<html><body><h1 id="top">x</h1>{}</body></html>'


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        ('<a href="other.html">x</a>', None),
        ('<a href="other.html#top">x</a>', None),
        ('<a href="#top">x</a>', None),
        ('<a href="a%20file.txt">x</a>', None),
        ('<a href="https://example.com/">x</a>', None),
        ('<a href="gone.html">x</a>', "gone.html leads nowhere"),
        ('<a href="other.html#gone">x</a>', "other.html#gone leads nowhere"),
        ('<a href="#gone">x</a>', "#gone leads nowhere"),
        ('<img src="gone.png">', "gone.png does not exist"),
        ('<script src="https://cdn.example.com/x.js"></script>', "https://cdn.example.com/x.js is loaded from another server"),
        ('<link href="//cdn.example.com/x.css">', "//cdn.example.com/x.css is loaded from another server"),
    ],
)
def test_a_link_that_leads_nowhere_and_what_comes_from_elsewhere_is_found(tmp_path: Path, part: str, fault: str | None) -> None:
    (tmp_path / "page.html").write_text(PAGE.format(part))
    (tmp_path / "other.html").write_text(PAGE.format(""))
    (tmp_path / "a file.txt").write_text("x")
    assert faults_of(tmp_path) == ([f"page.html: {fault}"] if fault else [])
