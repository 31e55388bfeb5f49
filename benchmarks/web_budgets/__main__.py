"""The command line of the package, which its docstring describes."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable

from benchmarks.command_line import above_zero, count, end_everything_when_ended
from benchmarks.web_budgets import __doc__ as package_doc
from benchmarks.web_budgets.answering import answered, lines, pages, sessions
from benchmarks.web_budgets.browsing import chromium, first_visits, heatmaps, live
from benchmarks.web_budgets.budgets import HEADING, Line, say
from benchmarks.web_budgets.fleet import INSTANCES, served
from benchmarks.web_budgets.happening import events
from benchmarks.web_budgets.reporting import CANDIDATES, traffic
from benchmarks.web_budgets.viewers import Watched, watching

from fairlead_testing.running.browser_site import CHROMIUM

SECTIONS = ("ttfb", "weight", "heatmap", "live", "events")
WARM_SECONDS = 3.0


def measured(only: set[str], times: int, minutes: float, viewers: int, instances: int) -> list[Line]:
    found: list[Line] = []

    def section(name: str, words: str, work: Callable[[], Iterable[Line]]) -> None:
        if name not in only:
            return
        begun, spent = time.monotonic(), api.cpu_seconds()
        say(f"{words} …")
        for line in work():
            say(f"  {line}")
            found.append(line)
        gone = time.monotonic() - begun
        say(f"  in {gone:.0f} s; the server had {(api.cpu_seconds() - spent) / gone:.0%} of a core, load {os.getloadavg()[0]:.1f}")

    with served(instances) as api:
        me, *others = sessions(api.url, viewers + 1)
        paths = pages(api.url)
        with traffic(api.url, instances) as reported, chromium() as browser:
            time.sleep(WARM_SECONDS)
            section("ttfb", "pages, nobody watches", lambda: lines(answered(api.url, me, paths, times), "nobody watches"))
            section("weight", "first visits", lambda: first_visits(browser, api.url, me, paths))
            section("heatmap", "drawing heatmaps", lambda: heatmaps(browser, api.url, me))
            section("live", f"three open pages for {minutes:g} min", lambda: live(browser, api.url, me, minutes))
            section("events", "events", lambda: events(browser, api.url, me, reported, instances, "nobody else watches"))
            if only & {"ttfb", "events"}:
                who, seen = f"{viewers} watch", Watched()
                say(f"{viewers} viewers come …")
                with watching(api.url, others, seen):
                    section("ttfb", f"pages, {who}", lambda: lines(answered(api.url, me, paths, times), who))
                    section("events", f"events, {who}", lambda: events(browser, api.url, me, reported, instances, who))
                found += seen.lines()
            found.append(Line(what="reports that the API did not accept", figure=reported.refused(), unit="", most=0))
        found.append(Line(what="memory of the server", figure=api.resident_mb(), unit="MB"))
    return found


def main() -> int:
    """Print a Markdown table, and return 1 if a target was missed."""
    reading = argparse.ArgumentParser(
        prog="python -m benchmarks.web_budgets", description=package_doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    reading.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    reading.add_argument("--times", type=count, default=6, help="number of requests to each page")
    reading.add_argument(
        "--minutes", type=above_zero, default=0.75, help="minutes for which pages stay open; the growth of a heap needs ten or more"
    )
    reading.add_argument("--viewers", type=count, default=50, help="who watch")
    reading.add_argument("--instances", type=count, default=INSTANCES, help="of the pool")
    given = reading.parse_args()
    if given.instances < CANDIDATES:
        reading.error(f"--instances {given.instances}: decisions weigh {CANDIDATES}, so there must be as many")
    if not CHROMIUM.exists():
        reading.error("pages are opened in Chromium, which is not installed: run scripts/ensure-browser.sh")
    end_everything_when_ended()
    begun, load = time.monotonic(), os.getloadavg()[0]
    found = measured(set(given.only), given.times, given.minutes, given.viewers, given.instances)
    print(
        f"{os.cpu_count()} cores, load {load:.1f} before and {os.getloadavg()[0]:.1f} after {(time.monotonic() - begun) / 60:.1f} minutes\n"
    )
    print(HEADING)
    for line in found:
        print(line)
    missed = [line for line in found if line.missed]
    say(f"{len(missed)} of {sum(line.most is not None for line in found)} targets missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
