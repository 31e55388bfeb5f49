"""Measures the time to first byte of pages; they are requested as a browser does, one after the other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
from benchmarks.web_budgets.budgets import Line, percentile

from fairlead_testing.running.api import SECRETS
from fairlead_testing.running.browser_site import session_cookie
from fairlead_testing.running.tour import pages_of

POOL = "big/p1"
LIST_MS, HEATMAP_MS = 150.0, 250.0
HEATMAP = f"/pools/{POOL}/heatmap?from=now-3590s&to=now&columns=360"
"""The path of the largest heatmap.

Its columns are ten seconds wide. The range is 10 s shorter than an hour, because an hour that ends within a column
would touch 361 columns.
"""
PAUSE_SECONDS = 0.01
NOT_MEASURED = frozenset({"help", "settings", "keys", "plan"})
"""The names of small pages without a list, which are not measured."""


def sessions(url: str, count: int) -> list[str]:
    """Sign `count` people in, each by a login link of their own; return their session tokens."""
    admin = {"authorization": f"Bearer {SECRETS['admin']}"}
    found = []
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
        for _ in range(count):
            link = http.post("/v1/login-links", json={"role": "operator"}, headers=admin).raise_for_status().json()
            found.append(str(http.post("/v1/login", json={"token": link["token"]}).raise_for_status().json()["token"]))
    return found


def browser(url: str, session: str) -> httpx.Client:
    return httpx.Client(
        base_url=url,
        cookies={session_cookie(url): session},
        headers={"accept-encoding": "gzip"},
        timeout=60,
        trust_env=False,
        follow_redirects=False,
    )


def pages(url: str) -> dict[str, str]:
    """Return the paths of all pages by name, with an example of each kind of record, and the largest heatmap."""
    headers = {"authorization": f"Bearer {SECRETS['admin']}"}
    with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as http:

        def ask(path: str, **query: Any) -> Any:
            return http.get(path, params=query).raise_for_status().json()

        found: Mapping[str, str] = pages_of(ask, POOL)
    named = {name: path for name, path in found.items() if name not in NOT_MEASURED}
    return {**named, "heatmap-512x360": HEATMAP}


def answered(url: str, session: str, paths: Mapping[str, str], times: int) -> dict[str, list[float]]:
    """Return the milliseconds to the first byte by page. Each page is requested once before the measurement."""
    taken: dict[str, list[float]] = {name: [] for name in paths}
    with browser(url, session) as http:
        for number in range(times + 1):
            for name, path in paths.items():
                begun = time.perf_counter()
                with http.stream("GET", path) as answer:
                    ms = (time.perf_counter() - begun) * 1000
                    if answer.status_code != 200:
                        raise SystemExit(f"{path}: {answer.status_code}")
                    answer.read()
                if number:
                    taken[name].append(ms)
                time.sleep(PAUSE_SECONDS)
    return taken


def lines(taken: Mapping[str, list[float]], who: str) -> Iterator[Line]:
    """Yield a line for all lists and details together, and a line for each page."""
    others = [one for name, values in taken.items() if "heatmap" not in name for one in values]
    yield Line(
        what=f"TTFB of all other pages, {who}",
        figure=percentile(others, 0.95),
        unit="ms",
        most=LIST_MS,
        told=f"p95 of {len(others)}, p50 {percentile(others, 0.5):.0f} ms",
    )
    for name, values in sorted(taken.items(), key=lambda item: -percentile(item[1], 0.95)):
        most = HEATMAP_MS if "heatmap" in name else LIST_MS
        told = f"p95 of {len(values)}, p50 {percentile(values, 0.5):.0f} ms"
        yield Line(what=f"TTFB of {name}, {who}", figure=percentile(values, 0.95), unit="ms", most=most, told=told)
