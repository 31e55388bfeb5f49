"""Where the sessions of a drained instance go."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fairlead.draining import spread


@given(st.integers(0, 60), st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 20), max_size=6))
def test_a_drain_levels_the_sessions(count: int, bound: dict[str, int]) -> None:
    sessions = [f"s{number}" for number in range(count)]
    targets = spread(sessions, bound)
    assert set(targets) == (set(sessions) if bound else set())
    after = Counter(targets.values())
    took = [bound[name] + after[name] for name in bound if after[name]]
    assert not took or max(took) - min(bound[name] + after[name] for name in bound) <= 1
