"""Contexts that are worth keeping: which count, for how long, and which evidence ends that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.knowledge import kept_contexts
from fairlead.routing.knowledge.kept_contexts import ENDED_SECONDS, KeptContexts
from fairlead_testing.examples import examples


def at(contexts: KeptContexts, instance: str, now: float) -> float:
    return float(contexts.tokens_at((instance,), now)[0])


def served(contexts: KeptContexts, session: str, instance: str, tokens: int, now: float, answer: int = 0, seconds: float = 1.0) -> float:
    """Serve a turn of this session and return the time of its end."""
    contexts.placed(session, f"{session}@{now}", instance, tokens, now)
    contexts.ended(session, f"{session}@{now}", answer, now + seconds)
    return now + seconds


def after_pauses(pause: float, turns: int = 40) -> tuple[KeptContexts, float]:
    """Return the contexts of a pool whose sessions paused this long between two turns, and ended after the second."""
    contexts = KeptContexts()
    now = 0.0
    for number in range(turns):
        end = served(contexts, f"seen{number}", "elsewhere", 1000, now)
        now = served(contexts, f"seen{number}", "elsewhere", 1200, end + pause) + 1.0
    now += ENDED_SECONDS
    contexts.tokens_at((), now)
    return contexts, now


def test_a_context_counts_in_full_while_its_turn_runs_and_with_its_answer_after_it() -> None:
    contexts = KeptContexts()
    contexts.placed("agent", "r1", "i0", 50_000, 0.0)
    assert at(contexts, "i0", 100.0) == 50_000
    contexts.ended("agent", "r1", 500, 100.0)
    assert 0 < at(contexts, "i0", 101.0) <= 50_500


def test_a_context_is_likely_to_be_used_again_within_the_usual_pause_and_hardly_beyond() -> None:
    contexts, now = after_pauses(20.0)
    end = served(contexts, "agent", "i0", 10_000, now)
    soon, late = at(contexts, "i0", end + 2.0), at(contexts, "i0", end + 300.0)
    assert soon > 4_000, "every second turn was followed by another"
    assert late < 1_500


def test_a_turn_that_went_elsewhere_takes_the_context_with_it() -> None:
    contexts = KeptContexts()
    end = served(contexts, "agent", "i0", 10_000, 0.0)
    contexts.placed("agent", "r2", "i1", 11_000, end)
    assert (at(contexts, "i0", end + 5.0), at(contexts, "i1", end + 5.0)) == (0.0, 11_000.0)


def test_a_turn_placed_again_before_it_ends_counts_once_where_it_is_now() -> None:
    contexts = KeptContexts()
    contexts.placed("agent", "r1", "i0", 10_000, 0.0)
    contexts.placed("agent", "r1", "i1", 10_000, 0.5)
    assert [at(contexts, one, 0.6) for one in ("i0", "i1")] == [0.0, 10_000.0]
    contexts.ended("agent", "r1", 0, 1.0)
    assert at(contexts, "i1", 30.0) < 10_000


def test_a_compacted_context_counts_with_what_is_left_of_it() -> None:
    contexts = KeptContexts()
    end = served(contexts, "agent", "i0", 90_000, 0.0)
    contexts.placed("agent", "r2", "i0", 9_000, end)
    assert at(contexts, "i0", end) == 9_000


def test_an_instance_that_lost_its_cache_keeps_nothing() -> None:
    contexts = KeptContexts()
    contexts.placed("agent", "r1", "i0", 90_000, 0.0)
    contexts.lost("i0")
    assert at(contexts, "i0", 0.0) == 0
    contexts.ended("agent", "r1", 100, 1.0)
    assert at(contexts, "i0", 2.0) == 0


def test_sessions_beyond_the_limit_are_no_longer_followed_those_used_longest_ago_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_contexts, "MOST_CONTEXTS", 3)
    contexts = KeptContexts()
    for number in range(5):
        contexts.placed(f"agent{number}", f"r{number}", f"i{number}", 100, float(number))
    assert [at(contexts, f"i{number}", 10.0) for number in range(5)] == [0, 0, 100, 100, 100]


STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(1, 100_000), st.floats(0.0, 400.0), st.booleans()), min_size=1, max_size=60
)


@examples(200)
@given(STEPS)
def test_what_is_kept_is_never_less_than_nothing_nor_more_than_all_contexts(steps: list[tuple[int, int, int, float, bool]]) -> None:
    contexts, now = KeptContexts(), 0.0
    running: dict[int, str] = {}
    most: dict[int, int] = {}
    for place, (session, instance, tokens, seconds, ends) in enumerate(steps):
        now += seconds
        if ends and session in running:
            contexts.ended(f"s{session}", running.pop(session), 10, now)
            most[session] = most.get(session, 0) + 10
        else:
            running[session] = f"r{place}"
            contexts.placed(f"s{session}", f"r{place}", f"i{instance}", tokens, now)
            most[session] = tokens
        kept = contexts.tokens_at(("i0", "i1", "i2"), now)
        assert (kept >= 0).all()
        assert kept.sum() <= sum(most.values()) * (1 + 1e-9)
