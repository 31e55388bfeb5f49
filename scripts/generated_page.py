"""Writes a generated page, or with `--check` only reports whether it is up to date."""

import sys
from collections.abc import Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def settle(page: Path, text: str) -> int:
    """Write the page, or with `--check` on the command line compare it; return 1 if it differs."""
    if "--check" in sys.argv[1:]:
        same = page.exists() and page.read_text(encoding="utf-8") == text
        print(f"{page.name}: {'up to date' if same else 'out of date; run make generate'}")
        return int(not same)
    page.write_text(text, encoding="utf-8")
    return 0


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table. Bars in cells are escaped, also within code, as GitHub requires."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in line) + " |\n" for line in lines)
