"""Draws the diagrams of the documents for the site: `.venv/bin/python scripts/draw_diagrams.py MERMAID_JS`.

MERMAID_JS is `dist/mermaid.min.js` of the npm package mermaid (12.3.0 drew the present pictures). A picture's name is a
hash of the diagram's text, so that a test finds a diagram that was changed and not drawn again.
"""

import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from docs.site.staging import DIAGRAMS, diagram_name, diagrams  # noqa: E402 (the folder is a package of the root)

LOOK = "{startOnLoad: false, theme: 'neutral', htmlLabels: false, flowchart: {htmlLabels: false}, fontFamily: 'sans-serif'}"


def main() -> None:
    """Draw every diagram, and remove the pictures of diagrams that no longer exist."""
    folder = ROOT / DIAGRAMS
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {diagram_name(text): text for path in (ROOT / "docs").rglob("*.md") for text in diagrams(path.read_text(encoding="utf-8"))}
    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"]).new_page()
        page.add_script_tag(path=sys.argv[1])
        page.evaluate(f"mermaid.initialize({LOOK})")
        for name, text in drawn.items():
            (folder / name).write_text(_svg(page, text), encoding="utf-8")
    for path in set(folder.glob("*.svg")) - {folder / name for name in drawn}:
        path.unlink()


def _svg(page: Page, text: str) -> str:
    return str(page.evaluate("async (text) => (await mermaid.render('drawing', text)).svg", text)) + "\n"


if __name__ == "__main__":
    main()
