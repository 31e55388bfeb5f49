"""Follows every link of finished pages to its page and anchor, and finds files that would be loaded from other
servers.
"""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
"""Elements and attributes that make a browser load a file with the page."""


class Page(HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif (tag, name) in LOADED and value:
                self.loads.append(value)
            elif (tag, name) == ("a", "href") and value:
                self.links.append(value)


def faults_of(site: Path) -> list[str]:
    """Return each dead link of the site, and each file that a page would load from another server."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    return [f"{path.relative_to(site.resolve())}: {fault}" for path, page in pages.items() for fault in _faults(path, page, pages)]


def _faults(path: Path, page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    for link in page.loads:
        if urlsplit(link).netloc:
            yield f"{link} is loaded from another server"
        elif not link.startswith("data:") and not _target(path, link).is_file():
            yield f"{link} does not exist"
    for link in page.links:
        parts = urlsplit(link)
        if not (parts.scheme or parts.netloc) and not _leads_somewhere(path, link, pages):
            yield f"{link} leads nowhere"


def _leads_somewhere(path: Path, link: str, pages: dict[Path, Page]) -> bool:
    target, anchor = _target(path, link), unquote(urlsplit(link).fragment)
    if target not in pages:
        return target.is_file()
    return not anchor or anchor in pages[target].anchors


def _target(path: Path, link: str) -> Path:
    named = unquote(urlsplit(link).path)
    return (path.parent / named).resolve() if named else path
