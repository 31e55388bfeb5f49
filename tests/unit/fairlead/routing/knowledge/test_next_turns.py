"""Which sessions are worth a place in another cache: likelihoods of a next turn, learned from pauses, and the order."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.knowledge.next_turns import Leaving, NextTurns, ranked
from fairlead_testing.examples import examples

SECONDS = st.floats(0.0, 1e7)
SESSIONS = st.lists(
    st.builds(Leaving, name=st.text("abc", min_size=1, max_size=3), tokens=st.integers(0, 200_000), idle_seconds=SECONDS), max_size=30
)


def learned(came: list[float], ended: list[float]) -> NextTurns:
    turns = NextTurns()
    for seconds in came:
        turns.came(seconds)
    for seconds in ended:
        turns.ended(seconds)
    return turns


@given(came=st.lists(SECONDS, max_size=50), ended=st.lists(SECONDS, max_size=50), idle=SECONDS, soon=st.floats(1.0, 1e6))
@examples(200)
def test_a_likelihood_is_between_nothing_and_certainty(came: list[float], ended: list[float], idle: float, soon: float) -> None:
    assert 0.0 < learned(came, ended).likelihood(idle, soon) < 1.0


@given(came=st.lists(SECONDS, max_size=50), idle=SECONDS)
@examples(100)
def test_one_more_turn_after_such_a_pause_makes_the_next_likelier_and_an_end_less_likely(came: list[float], idle: float) -> None:
    before = learned(came, []).likelihood(idle)
    assert learned([*came, idle], []).likelihood(idle) > before
    assert learned(came, [idle]).likelihood(idle) < before


def test_sessions_that_are_idle_for_longer_than_their_kind_pauses_are_unlikely_to_come_back() -> None:
    turns = learned([20.0] * 90 + [900.0] * 5, [3600.0] * 40)
    assert turns.likelihood(5.0) > 0.6
    assert turns.likelihood(60.0) < 0.2
    assert turns.likelihood(800.0, 300.0) < 0.2


def test_before_anything_was_seen_the_one_that_spoke_last_comes_first() -> None:
    order = [
        worth.session.name
        for worth in ranked([Leaving(name=f"{idle}", tokens=9000, idle_seconds=idle) for idle in (400, 10, 90)], NextTurns())
    ]
    assert order == ["10", "90", "400"]


def test_counts_are_forgotten_in_favour_of_new_ones() -> None:
    turns = learned([20.0] * 10_000, [])
    for _ in range(8000):
        turns.ended(25.0)
    assert turns.likelihood(10.0) < 0.5


@given(sessions=SESSIONS, came=st.lists(SECONDS, max_size=30))
@examples(100)
def test_the_order_has_each_session_with_tokens_once_and_the_best_worth_for_its_price_first(
    sessions: list[Leaving], came: list[float]
) -> None:
    worths = ranked(sessions, learned(came, [10.0]))
    assert sorted(map(id, (worth.session for worth in worths))) == sorted(id(one) for one in sessions if one.tokens)
    assert [worth.per_token for worth in worths] == sorted((worth.per_token for worth in worths), reverse=True)


def test_what_is_fetched_comes_in_the_order_of_what_it_spares_as_each_takes_as_long() -> None:
    turns = NextTurns()
    sessions = [Leaving(name="short", tokens=1_000, idle_seconds=1.0), Leaving(name="long", tokens=50_000, idle_seconds=200.0)]
    assert [worth.session.name for worth in ranked(sessions, turns)] == ["short", "long"]
    assert [worth.session.name for worth in ranked(sessions, turns, fetched=True)] == ["long", "short"]
