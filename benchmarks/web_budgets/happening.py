"""Measures the time from a report until an open page shows it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

from benchmarks.web_budgets.answering import POOL
from benchmarks.web_budgets.browsing import person
from benchmarks.web_budgets.budgets import Line, percentile, say
from benchmarks.web_budgets.reporting import Traffic
from playwright.sync_api import Browser, Page

SHOWN_SECONDS = 2.0
TIMES = 12
PAUSE_SECONDS = 1.3
"""Seconds between events. It is not a multiple of an interval of the system, so that events meet all phases of
intervals.
"""
PATIENCE_SECONDS = 30.0
WATCH = """
() => {
  const note = () => {
    const now = performance.timeOrigin + performance.now();
    const serve = document.querySelector("#workspace")?.textContent.match(/([\\d,]+) of [\\d,]+ serve/)?.[1];
    for (const one of [serve, ...[...document.querySelectorAll("[data-key]")].map((row) => row.dataset.key)]) seen.shown[one] ??= now;
  };
  seen.shown = {};
  note();
  new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""


def events(browser: Browser, url: str, session: str, traffic: Traffic, instances: int, who: str) -> Iterator[Line]:
    """Cordon instances one after the other and migrate sessions. Yield the times until open pages show these events.

    A cordon is seen on the pool's page, in the number of serving instances. A migration is seen in the newest row of
    the list of migrations.
    """
    context = person(browser, url, session)
    pool, moves = (context.new_page() for _ in range(2))
    for page, path in ((pool, f"/pools/{POOL}"), (moves, "/migrations")):
        page.goto(url + path)
        page.wait_for_selector("#live-pill[data-state=live]")
        page.evaluate(WATCH)
    taken: dict[str, list[float]] = {"an instance is cordoned": [], "a session migrates": []}
    for number in range(1, min(TIMES, instances - 1) + 1):
        begun = traffic.cordon(number)
        taken["an instance is cordoned"].append(_shown(pool, f"{instances - number:,}") - begun)
        time.sleep(PAUSE_SECONDS)
        name = f"seen-{uuid.uuid4().hex}"
        begun = traffic.move(name)
        taken["a session migrates"].append(_shown(moves, name) - begun)
        time.sleep(PAUSE_SECONDS)
        say(f"  {number}: " + ", ".join(f"{what} {values[-1]:.2f} s" for what, values in taken.items()))
    traffic.cordon(0)
    context.close()
    for what, values in taken.items():
        told = f"p95 of {len(values)}, p50 {percentile(values, 0.5):.2f} s"
        figure = percentile(values, 0.95)
        yield Line(what=f"{what}, from the report to the open page, {who}", figure=figure, unit="s", most=SHOWN_SECONDS, told=told)


def _shown(page: Page, what: str) -> float:
    """Return the Unix time at which the page first showed the text."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        at = page.evaluate("(what) => seen.shown[what] ?? 0", what)
        if at:
            return float(at) / 1000
        page.wait_for_timeout(50)
    raise SystemExit(f"an open page did not show {what} within {PATIENCE_SECONDS:g} s")
