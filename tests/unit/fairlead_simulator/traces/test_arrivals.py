from fairlead_simulator.traces.arrivals import arrival_times
from fairlead_simulator.traces.rows import TraceRow


def rows(*stamps: float) -> list[TraceRow]:
    return [TraceRow(timestamp_ms=stamp, input_length=1, output_length=1, hash_ids=(number,)) for number, stamp in enumerate(stamps)]


def due(*stamps: float, speed: float = 1.0, bursts: bool = False) -> list[float]:
    return [seconds for seconds, _ in arrival_times(rows(*stamps), speed, bursts)]


def test_rows_with_equal_stamps_are_spread_over_the_gap_to_the_next_stamp() -> None:
    assert due(1000, 1000, 1000, 4000, 4000) == [0, 1, 2, 3, 4.5]


def test_bursts_are_kept_when_asked_for() -> None:
    assert due(1000, 1000, 4000, bursts=True) == [0, 0, 3]


def test_speed_divides_all_times() -> None:
    assert due(0, 0, 3000, speed=3.0) == [0, 0.5, 1]


def test_a_trace_of_one_stamp_or_none_is_sent_at_once() -> None:
    assert due(500, 500) == [0, 0]
    assert due() == []
