"""The requests to the API: every path of its document with every filter, as the test of bounded reads sends them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from urllib.parse import quote, urlencode

ROOT = Path(__file__).resolve().parents[2]
POOL = "big/p1"
HEATMAPS = (("now-6m", "1 s"), ("now-1h", "10 s"), ("now-6h", "1 min"), ("now-24h", "5 min"))
"""The heatmap ranges that are requested, as (begin, width of a column). Each range ends now. A column has this width
because a heatmap has at most 360 columns.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A GET. `group` is its line in the table, `limit_ms` its target at p95."""

    group: str
    path: str
    limit_ms: float


def bounded_reads() -> ModuleType:
    """Return the test module with the paths, their filters, and values for the filters."""
    spec = importlib.util.spec_from_file_location("bounded_reads", ROOT / "tests/integration/api/test_bounded_reads.py")
    if spec is None or spec.loader is None:
        raise LookupError("tests/integration/api/test_bounded_reads.py is not there")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def questions(url: str, limit_ms: float, heatmap_ms: float) -> Iterator[Question]:
    """Yield all questions for a filled database: each path without filters and with each single filter, and the
    heatmaps. Requests with two or more parameters are left out.
    """
    reads = bounded_reads()
    for path, filters in reads.documented().items():
        asked: set[str] = set()
        for named, query in reads.questions(path, filters, url):
            if len(query) < 2:
                asked.add(named + ("?" + urlencode(query) if query else ""))
        for one in sorted(asked):
            yield Question(group=path, path=one, limit_ms=limit_ms)
    place = quote(POOL)
    for start, wide in HEATMAPS:
        for metric in ("pending_prefill_tokens", "ttft_p95"):
            asked_for = urlencode({"metric": metric, "from": start, "to": "now", "columns": 360})
            yield Question(
                group=f"heatmap of {start[4:]} in columns of {wide}", path=f"/v1/pools/{place}/heatmap?{asked_for}", limit_ms=heatmap_ms
            )
