"""Arranges documents as the site's generator requires them: one folder with an `index.md` and a table of contents.

The contents are those of `docs/README.md`. A diagram becomes the picture that was drawn of it. A link to the folder of
examples leads to a page that shows all examples.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from docs.site.api_reference import pages

FRONT, CONTENTS = "README.md", "docs/README.md"
OUTSIDE = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "cluster/README.md")
"""Documents outside `docs/` that are pages of the site."""
EXAMPLES, ENGINES, API = "examples", "examples/engines", "docs/api-reference"
DIAGRAMS = "docs/images/diagrams"
_DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()(?P<path>[^():#]+)(?P<anchor>#[^)]*)?(?=\))")
_SECTION = re.compile(r"^\*\*(.+)\*\*$")
_ENTRY = re.compile(r"^- \[[^\]]+\]\(([^)#]+)\)")


def diagram_name(drawn: str) -> str:
    """Return the file name of a diagram's picture, which is a hash of the diagram's text."""
    return f"{hashlib.sha256(drawn.encode()).hexdigest()[:16]}.svg"


def diagrams(text: str) -> list[str]:
    """Return the text of each diagram in a document."""
    return _DIAGRAM.findall(text)


def stage(root: Path, into: Path) -> None:
    """Write the site's sources from the checkout `root` into the folder `into`, which is emptied first."""
    shutil.rmtree(into, ignore_errors=True)
    documents = [FRONT, *OUTSIDE, *(_name(root, path) for path in sorted((root / "docs").rglob("*.md")))]
    for document in documents:
        _write(into / _page(document), _page_text(root, document))
    for target in sorted(set(_files(root, documents))):
        _copy(root / target, into / target)
    _write(into / EXAMPLES / "index.md", _examples_page(root))
    for name, text in pages(json.loads((root / "docs/openapi.json").read_text(encoding="utf-8"))).items():
        _write(into / API / name, text)


def _page_text(root: Path, document: str) -> str:
    text = (root / document).read_text(encoding="utf-8")
    text = _DIAGRAM.sub(lambda found: _picture(document, found[1]), text)
    text = _LINK.sub(lambda found: _link(document, found["path"]) + (found["anchor"] or ""), text)
    if document == FRONT:
        return text + "".join(_contents((root / CONTENTS).read_text(encoding="utf-8")))
    if document == CONTENTS:
        return "---\norphan: true\n---\n\n" + text  # its lists are the contents, so it is in none of them
    return text + _toctree("", ["*"], ":glob:") if document == "docs/decisions/README.md" else text


def _picture(document: str, drawn: str) -> str:
    return f"![The diagram of this page]({_relative(document, f'{DIAGRAMS}/{diagram_name(drawn)}')})"


def _link(document: str, path: str) -> str:
    """Return the target in the site of a link in a document."""
    target = _target(document, path)
    special = {FRONT: "index.md", EXAMPLES: f"{EXAMPLES}/index.md", ENGINES: f"{EXAMPLES}/index.md"}
    return _relative(document, special[target]) if target in special else path


def _contents(index: str) -> Iterator[str]:
    """Yield a table of contents for each section of `docs/README.md`, in its order."""
    section, entries = "", list[str]()
    for line in (*index.splitlines(), "**end**"):
        if found := _SECTION.match(line):
            if entries:
                yield _toctree(section, entries)
            section, entries = found[1], []
        elif entry := _ENTRY.match(line):
            entries += _entry(_target(CONTENTS, entry[1]))


def _entry(target: str) -> list[str]:
    if target == FRONT:
        return []
    if target == "docs/openapi.json":
        return [f"{API}/index"]
    return [f"{target}/index" if target == EXAMPLES else target.removesuffix(".md")]


def _toctree(caption: str, entries: Iterable[str], *options: str) -> str:
    head = ["```{toctree}", ":hidden:", *options, *([f":caption: {caption}"] if caption else [])]
    return "\n\n" + "\n".join([*head, "", *entries, "```"]) + "\n"


def _files(root: Path, documents: Iterable[str]) -> Iterator[str]:
    """Yield the files that documents link to or show and that are not pages: pictures, manifests, scripts."""
    for document in documents:
        text = (root / document).read_text(encoding="utf-8")
        yield from (f"{DIAGRAMS}/{diagram_name(drawn)}" for drawn in diagrams(text))
        for found in _LINK.finditer(text):
            target = _target(document, found["path"])
            if not target.endswith(".md") and (root / target).is_file():
                yield target


def _examples_page(root: Path) -> str:
    lines = ["# Examples", "", "Pools to copy. Each file says above its fields what it is for.", ""]
    for path in sorted(path for folder in (EXAMPLES, ENGINES) for path in (root / folder).glob("*.yaml")):
        lines += [f"## {path.name}", "", "```yaml", path.read_text(encoding="utf-8").rstrip(), "```", ""]
    return "\n".join(lines)


def _target(document: str, path: str) -> str:
    """Return a link's target as a path from the repository's root, with `..` resolved."""
    parts: list[str] = []
    for part in (PurePosixPath(document).parent / path).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)


def _relative(document: str, target: str) -> str:
    return "../" * (len(PurePosixPath(document).parts) - 1) + target


def _page(document: str) -> str:
    return "index.md" if document == FRONT else document


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
