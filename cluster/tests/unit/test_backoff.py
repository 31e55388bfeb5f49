"""Back-off grows, is bounded, and is reset after success."""

from hypothesis import given
from hypothesis import strategies as st

from processkube.backoff import Backoff
from processkube.testing.examples import examples

FRESH = Backoff(first_seconds=0.25, longest_seconds=15.0, forgive_after_seconds=30.0)


def test_delays_double_up_to_the_longest() -> None:
    backoff, delays = FRESH, []
    for _ in range(9):
        backoff, delay = backoff.after_exit(0.0)
        delays.append(delay)
    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]


def test_a_long_good_run_is_forgiven() -> None:
    backoff, _ = FRESH.after_exit(0.0)
    backoff, _ = backoff.after_exit(0.0)
    assert backoff.after_exit(30.0)[1] == 0.25


@examples(50)
@given(st.lists(st.floats(min_value=0, max_value=100), max_size=50))
def test_a_delay_is_never_zero_and_never_longer_than_the_longest(runs: list[float]) -> None:
    backoff = FRESH
    for run in runs:
        backoff, delay = backoff.after_exit(run)
        assert 0.25 <= delay <= 15.0
