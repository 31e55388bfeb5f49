"""Requests that real engines served, as input of a fit, and the conditions that a set of such requests must meet."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead_simulator.errors import RecordsUnusable

LEAST_RECORDS = 100
"""Minimum number of records for a fit. A part of the records is used for the fit and the rest for measuring its error;
fewer records cannot determine eight costs.
"""
LATEST_SECONDS = 1e11
LONGEST_SECONDS = 86_400.0
"""Maximum seconds until a first token or the end of an answer: a day. A larger value is probably in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRecord:
    """A request that an engine served. `at` is the time at which the request was sent to the engine, in seconds from
    any origin that all records share. `ttft` is in seconds.

    `tpot` is the mean time in seconds between tokens after the first; None for an answer of one token. `in_flight` is
    the number of requests that the engine had when this request was sent, including this request; None if not recorded.
    """

    at: float
    engine: str
    prompt_tokens: int
    cached_tokens: int
    """Number of prompt tokens that were cached, always fewer than the whole prompt."""
    output_tokens: int
    ttft: float
    tpot: float | None
    in_flight: int | None = None

    @property
    def new_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens

    @property
    def ends_at(self) -> float:
        """Time at which the request's last token arrived, in seconds from the same origin as `at`."""
        return self.at + self.ttft + (self.tpot or 0.0) * (self.output_tokens - 1)


def check_records(records: Sequence[ServedRecord], source: str) -> None:
    """Check that a fit to these records is possible. Raises RecordsUnusable if it is not."""
    if len(records) < LEAST_RECORDS:
        raise RecordsUnusable(
            f"{source}: holds {len(records):,} records; a fit needs {LEAST_RECORDS} or more, from a time with much traffic"
        )
    for name, values in (
        ("ttft", {record.ttft for record in records}),
        ("tpot", {record.tpot for record in records if record.tpot is not None}),
        ("prompt_tokens less cached_tokens", {record.new_tokens for record in records}),
    ):
        if not values:
            raise RecordsUnusable(f"{source}: {name}: no record has one; record answers of more than one token")
        if len(values) == 1:
            raise RecordsUnusable(f"{source}: {name}: is {values.pop():g} in every record; a fit needs requests that differ in it")


def edges(records: Sequence[ServedRecord]) -> list[bool]:
    """Return, for each record, whether its request may have run at the same time as requests that were not recorded.
    The records must be in order of time.

    A request at the end of the recording counts if it had not ended when the last recorded request was sent. A request
    at the beginning counts if it was sent before a typical first request had ended (90th percentile of the first tenth)
    and its engine had more requests in flight than were recorded. If the number in flight is not recorded, the time
    alone decides.
    """
    last = records[-1].at
    first_tenth = sorted(record.ends_at - record.at for record in records[: max(10, len(records) // 10)])
    begin = records[0].at + first_tenth[int(0.9 * (len(first_tenth) - 1))]
    live: dict[str, list[float]] = {}
    found = []
    for record in records:
        here = live[record.engine] = [ends for ends in live.get(record.engine, ()) if ends > record.at]
        unseen = record.at < begin if record.in_flight is None else record.at < begin and record.in_flight - 1 > len(here)
        found.append(unseen or record.ends_at > last)
        here.append(record.ends_at)
    return found
