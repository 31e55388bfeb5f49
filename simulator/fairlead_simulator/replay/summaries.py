"""The results of a replay: a table for people, JSON for programs, and the files for this JSON."""

import os
import stat
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from fairlead_simulator.replay.outcomes import Percentiles, RequestOutcome, Summary
from fairlead_simulator.traces.sessions import Sessions


def summary_document(summary: Summary, sessions: Sessions) -> dict[str, Any]:
    """Return all figures as a document for JSON."""
    return asdict(summary) | {"sessions": sessions.document()}


def outcome_document(outcome: RequestOutcome) -> dict[str, Any]:
    """Return one request's outcome as a document for JSON."""
    return asdict(outcome) | {"tpot_seconds": outcome.tpot_seconds}


def summary_lines(summary: Summary, sessions: Sessions) -> list[str]:
    """Return the lines of the table that is shown at the end of a replay, one line per figure."""
    sums = "sums" if summary.accounted else "DOES NOT SUM"
    ideal = (
        "" if summary.ideal_token_hit_rate is None else f" ({_share(summary.ideal_token_hit_rate)} with endless caches, empty at the start)"
    )
    facts = [
        (
            "requests",
            f"{summary.sent} sent = {summary.served} served + {summary.rejected} rejected + {summary.failed} failed"
            f" + {summary.cancelled} cancelled ({sums})",
        ),
        ("sessions", sessions.words),
        ("rate", f"{summary.requests_per_second:.2f}/s over {summary.wall_seconds:.1f} s, largest lag {summary.largest_lag_seconds:.3f} s"),
        ("TTFT", _row(summary.ttft, 3)),
        ("TPOT", _row(summary.tpot, 4, p99=False)),
        ("E2E", _row(summary.e2e, 3, p99=False)),
        ("SLO", f"{_share(summary.slo_attainment)} of all requests sent had TTFT under {summary.slo_ttft_seconds:g} s"),
        ("token hit rate", _share(summary.token_hit_rate) + ideal),
    ]
    if summary.failovers or summary.retries:
        facts.append(("failovers", f"{summary.failovers}, retries of rejected requests {summary.retries}"))
    for title, counts in (("rejections", summary.rejections), ("failures", summary.failures), ("instances", summary.instances)):
        if counts:
            facts.append((title, "  ".join(f"{name} {count}" for name, count in counts.items())))
    return [f"{title:<15} {text}" for title, text in facts]


def _row(values: Percentiles, digits: int, p99: bool = True) -> str:
    shown = [("p50", values.p50), ("p90", values.p90)] + ([("p99", values.p99)] if p99 else [])
    return "  ".join(f"{name} {'–' if value is None else f'{value:.{digits}f} s'}" for name, value in shown)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


class ResultFile:
    """A file of results.

    The file is opened before the first request, so that an unwritable file is reported at once. Its old content is
    removed only when the first result is written, so that a run without results destroys no older results. Raises
    ClickException.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("ab")
        except OSError as error:
            raise click.ClickException(f"{path}: cannot be written: {error.strerror}") from None
        self._is_old = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)  # what is not a file, as a pipe, holds nothing

    def __enter__(self) -> "ResultFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._file.close()

    def write(self, content: bytes) -> None:
        """Append `content` to the results of this run."""
        if self._is_old:
            self._file.truncate(0)
            self._is_old = False
        self._file.write(content)
