"""The time at which each row of a trace is sent."""

from collections.abc import Iterable, Iterator

from fairlead_simulator.traces.rows import TraceRow


def arrival_times(rows: Iterable[TraceRow], speed: float, bursts: bool) -> Iterator[tuple[float, TraceRow]]:
    """Yield each row with the seconds after the start at which it is due, `speed` times as fast as recorded.

    Traces often give many rows one timestamp, for example every three seconds. Rows with equal timestamps are spread
    evenly over the time until the next timestamp; the last group is spread over a time as long as the gap before it.
    With `bursts`, rows with equal timestamps stay together.
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
