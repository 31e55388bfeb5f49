"""docs/pages.md says what the figures of the overview, of a pool and of migrations mean."""

import re
from pathlib import Path

import pytest

from fairlead_testing.running.web_client import visitor

ROOT = Path(__file__).parents[4]
PAGES = {
    "Overview": ("/",),
    "A pool": ("/pools/default/chat", "/pools/research/code"),
    "Migrations": ("/migrations", "/reroutes", "/pools/default/chat/migrations", "/migrations/m-0003", "/reroutes/q-0003"),
}


def explained(section: str) -> set[str]:
    """Return the figures in the first column of the section's table."""
    text = (ROOT / "docs/pages.md").read_text()
    body = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return {row.split("|")[1].strip() for row in body.splitlines() if row.startswith("| ")} - {"Figure"}


@pytest.mark.parametrize("section", PAGES)
async def test_each_tile_of_a_page_is_explained_and_nothing_that_no_page_shows(section: str) -> None:
    shown: set[str] = set()
    async with visitor() as one:
        for path in PAGES[section]:
            page = (await one.http.get(path)).text
            shown |= {re.sub(r"TTFT p[\d.]+", "TTFT p90", name) if section == "A pool" else name for name in tiles(page)}
    assert shown - explained(section) == set()
    assert explained(section) - shown <= {"Transfer"}, "only a move with a copy has it"


def tiles(page: str) -> set[str]:
    return {" ".join(name.split()) for name in re.findall(r'<div class="stat[^"]*">\s*<dt>([^<]*)</dt>', page)}
