"""Photographs every page of a running Fairlead, with its own data.

    PYTHONPATH=tests/support .venv/bin/python scripts/screenshots.py OUT
        [--state-dir .fairlead] [--pool default/demo] [--readme]

Each page is photographed whole at 1280 px in light and in dark and at 380 px, as OUT/<page>-<width>-<theme>.png. This
happens after the page was open for a minute, because people mostly see pages after a refresh. `--readme` also takes the
picture of the README. Ends with 1 if a page does not answer, needs sideways scrolling, reports a script error, lacks a
part, or lost something that was drawn when it opened.
"""

import argparse
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from fairlead_sandbox.state_directory import StateDirectory
from fairlead_testing.running.browser_site import CHROMIUM, CHROMIUM_ARGUMENTS, sign_in, watch_troubles
from fairlead_testing.running.ink import Ink, ink_of, lost
from fairlead_testing.running.sandbox import RunningSandbox
from fairlead_testing.running.tour import pages_of

VIEWS: tuple[tuple[int, Literal["light", "dark"]], ...] = ((1280, "light"), (1280, "dark"), (380, "light"))
DRAWN = """() => document.documentElement.classList.contains("scripted")
  && !document.querySelector('[aria-busy="true"]')
  && [...document.images].every((one) => one.complete)
  && [...document.querySelectorAll("[data-chart], [data-heatmap]")].every((one) => "ready" in one.dataset)"""
PATIENCE_MS = 60_000
OPEN_SECONDS = 60
SIDE_BY_SIDE = 21
"""Number of pages that are open at once, in three contexts. Each context has six connections, of which streams use
three.
"""
README = Path(__file__).parents[1] / "docs" / "images" / "heatmap.png"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """A page that stays open until its picture is taken: its problems so far, and what was drawn when it opened."""

    file: Path
    page: Page
    opened_at: float
    troubles: list[str]
    ink: list[Ink]


def photograph(browser: Browser, sandbox: RunningSandbox, paths: dict[str, str], out: Path, readme: str | None) -> list[str]:
    """Take all pictures, and return the problems, a line each. Several pages are open at once, each for at least a
    minute.
    """
    contexts = {view: looking(browser, sandbox, *view) for view in VIEWS}
    wanted = [(out / f"{name}-{width}-{theme}.png", (width, theme), path) for name, path in paths.items() for width, theme in VIEWS]
    wanted += [] if readme is None else [(README, VIEWS[0], readme)]
    wrong: list[str] = []
    tabs: deque[Tab] = deque()
    for file, view, path in wanted:
        if len(tabs) == SIDE_BY_SIDE:
            wrong += taken(tabs.popleft())
        tabs.append(opened(contexts[view], sandbox.url("api"), path, file))
    for tab in tabs:
        wrong += taken(tab)
    return wrong


def looking(browser: Browser, sandbox: RunningSandbox, width: int, theme: Literal["light", "dark"]) -> BrowserContext:
    """Return a browser context with a session, connections of its own, a width and a theme."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    sign_in(page, sandbox)
    page.close()
    return context


def opened(context: BrowserContext, origin: str, path: str, file: Path) -> Tab:
    page = context.new_page()
    troubles = watch_troubles(page, origin)
    answer = page.goto(origin + path)
    status = answer.status if answer else 0
    troubles += [f"answered {status}"] * (status != 200)
    settle(page)
    return Tab(file=file, page=page, opened_at=time.monotonic(), troubles=troubles, ink=ink_of(page))


def settle(page: Page) -> None:
    """Wait until everything is drawn. Charts, and pictures that are loaded late, are drawn only when they are near the
    window.
    """
    for late in page.locator("[data-chart], img[loading=lazy]").all():
        late.scroll_into_view_if_needed()
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_function(DRAWN, timeout=PATIENCE_MS)


def taken(tab: Tab) -> list[str]:
    """Take the picture when the page was open for a minute, close the page, and return the problems until then."""
    page = tab.page
    page.bring_to_front()
    page.wait_for_timeout(max(0.0, tab.opened_at + OPEN_SECONDS - time.monotonic()) * 1000)
    settle(page)
    faded = lost(tab.ink, ink_of(page), share=0.05)
    page.screenshot(path=str(tab.file), full_page=tab.file != README)
    over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    missing = page.locator(".notice", has_text="Part of this page is missing").all_inner_texts()
    page.close()
    return [f"{tab.file.stem}: {one}" for one in [*tab.troubles, *faded, *[f"{over} px too wide"] * (over > 0), *missing]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--state-dir", type=Path, default=Path(".fairlead"))
    parser.add_argument("--pool", default="default/demo")
    parser.add_argument("--readme", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sandbox = RunningSandbox(state=StateDirectory(root=options.state_dir.absolute()))
    if sandbox.state.read_run() is None:
        sys.exit(f"no sandbox runs in {options.state_dir}: start one with `make up`, or name its folder with --state-dir")
    paths = dict(pages_of(sandbox.ask, options.pool))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(CHROMIUM_ARGUMENTS))
        wrong = photograph(browser, sandbox, paths, options.out, paths["pool-heatmap"] + "?from=now-30m" if options.readme else None)
        browser.close()
    print(*wrong, f"{len(paths)} pages, {len(paths) * len(VIEWS)} pictures in {options.out}", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
