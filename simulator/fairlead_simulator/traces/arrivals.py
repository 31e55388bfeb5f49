"""The times at which the rows of a trace are sent."""

from collections.abc import Iterable, Iterator

from fairlead_simulator.traces.rows import TraceRow


def arrival_times(rows: Iterable[TraceRow], speed: float, bursts: bool) -> Iterator[tuple[float, TraceRow]]:
    """Yield each row with the time at which it is due, in seconds after the start. The trace runs `speed` times as fast
    as it was recorded.

    Traces often give many rows the same timestamp, for example every three seconds. Such rows are spread evenly over
    the time until the next timestamp. The rows with the last timestamp are spread over a time as long as the gap before
    it. If `bursts`, rows with equal timestamps are sent together.
    """
    first: float | None = None
    group: list[TraceRow] = []
    gap = 0.0
    for row in rows:
        if first is None:
            first = row.timestamp_ms
        if group and row.timestamp_ms != group[0].timestamp_ms:
            gap = row.timestamp_ms - group[0].timestamp_ms
            yield from _spread(group, first, 0.0 if bursts else gap, speed)
            group = []
        group.append(row)
    if group and first is not None:
        yield from _spread(group, first, 0.0 if bursts else gap, speed)


def _spread(group: list[TraceRow], first_ms: float, gap_ms: float, speed: float) -> Iterator[tuple[float, TraceRow]]:
    start = group[0].timestamp_ms - first_ms
    for position, row in enumerate(group):
        yield (start + gap_ms * position / len(group)) / 1e3 / speed, row
