"""Requests in flight that this router goes on reporting for a while, as another one begins to report them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf

from fairlead.reports.loads import InstanceInFlight

KEEP_REPORTING_SECONDS = 3.0
"""A router that decides for itself again has told of its requests by then."""


class KeptRows:
    """What was in flight to each instance of one pool; to be forgotten at `until`.

    Without it an instance that drains would be taken for one without requests, while neither router tells of them.
    """

    __slots__ = ("_rows", "until")

    def __init__(self) -> None:
        self._rows: dict[str, InstanceInFlight] = {}
        self.until = inf

    def keep(self, rows: Iterable[InstanceInFlight], now: float) -> None:
        """Keep what has been sent, not what is queued: the other router queues that."""
        for row in rows:
            sent = row.in_flight - row.waiting
            if sent > (self._rows[row.instance].in_flight if row.instance in self._rows else 0):
                self._rows[row.instance] = replace(row, in_flight=sent, waiting=0)
        self.until = now + KEEP_REPORTING_SECONDS

    def add_to(self, rows: dict[str, InstanceInFlight]) -> None:
        """Tell of what is kept where `rows` tell of less."""
        for row in self._rows.values():
            known = rows.get(row.instance, row)
            rows[row.instance] = replace(known, in_flight=max(row.in_flight, known.in_flight))
