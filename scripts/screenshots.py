"""Photographs every page of a running Fairlead, with its own data.

    PYTHONPATH=tests/support .venv/bin/python scripts/screenshots.py OUT
        [--state-dir .fairlead] [--pool default/demo] [--readme]

Each page is taken whole at 1280 px in light and in dark and at 380 px, as OUT/<page>-<width>-<theme>.png. `--readme`
also takes the picture of the README. Ends with 1 if a page does not answer, sticks out sideways or reports a script
error, or lacks a part.
"""

import argparse
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from fairlead_sandbox.state_directory import StateDirectory
from fairlead_testing.running.browser_site import CHROMIUM, CHROMIUM_ARGUMENTS, sign_in, watch_troubles
from fairlead_testing.running.sandbox import RunningSandbox
from fairlead_testing.running.tour import pages_of

VIEWS = ((1280, "light"), (1280, "dark"), (380, "light"))
DRAWN = """() => document.documentElement.classList.contains("scripted")
  && !document.querySelector('[aria-busy="true"]')
  && [...document.images].every((one) => one.complete)
  && [...document.querySelectorAll("[data-chart], [data-heatmap]")].every((one) => "ready" in one.dataset)"""
PATIENCE_MS = 30_000
README = Path(__file__).parents[1] / "docs" / "images" / "heatmap.png"


def photograph(browser: Browser, sandbox: RunningSandbox, paths: dict[str, str], out: Path, readme: str | None) -> list[str]:
    """Takes all pictures; returns what was wrong, a line each."""
    wrong: list[str] = []
    for width, theme in VIEWS:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="dark" if theme == "dark" else "light")
        page = context.new_page()
        sign_in(page, sandbox)
        troubles = watch_troubles(page, sandbox.url("api"))
        for name, path in paths.items():
            wrong += [
                f"{name} at {width}, {theme}: {one}" for one in taken(page, sandbox.url("api") + path, out / f"{name}-{width}-{theme}.png")
            ]
        wrong += troubles
        if readme is not None and (width, theme) == VIEWS[0]:
            page.goto(sandbox.url("api") + readme)
            settle(page)
            page.screenshot(path=str(README))
        context.close()
    return wrong


def settle(page: Page) -> None:
    """Returns when all is drawn. A chart, and a picture that is loaded late, is drawn only once it has been near the
    window.
    """
    for late in page.locator("[data-chart], img[loading=lazy]").all():
        late.scroll_into_view_if_needed()
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_function(DRAWN, timeout=PATIENCE_MS)


def taken(page: Page, url: str, file: Path) -> list[str]:
    answer = page.goto(url)
    settle(page)
    page.screenshot(path=str(file), full_page=True)
    over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    status = answer.status if answer else 0
    missing = page.locator(".notice", has_text="Part of this page is missing").all_inner_texts()
    return [f"answered {status}"] * (status != 200) + [f"{over} px too wide"] * (over > 0) + missing


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
