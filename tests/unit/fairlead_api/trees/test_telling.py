"""The facts read from the stored rows of a tree: order, gaps, moves, think times."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fairlead_api.trees.telling import MOST_TIMES, StoredTurn, Waited, in_order, spreads, told, tool_seconds, waited
from fairlead_testing.examples import examples

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def turn(at: float, seconds: float = 1.0, instance: str | None = "a") -> StoredTurn:
    return StoredTurn(
        session="s", at=at, ended_at=at + seconds, prompt_tokens=10, blocks=(), window_number=None, instance=instance, tool=None, task=None
    )


def test_turns_say_how_long_the_session_waited_and_where_it_came_from() -> None:
    found = told([turn(0), turn(5), turn(7, instance=None), turn(9, instance="b"), turn(20, instance="a")])
    assert [one.gap_seconds for one in found] == [None, 4, 1, 1, 10]
    assert [one.moved_from for one in found] == [None, None, None, None, "b"]
    assert tool_seconds(found) == 16


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.one_of(st.none(), st.sampled_from("abcdefghx")), max_size=8))
@examples(200)
def test_every_session_comes_once_and_after_its_parent(claims: dict[str, str | None]) -> None:
    parents: dict[str, str | None] = {}
    for name, parent in claims.items():  # without cycles, as they are stored
        parents[name] = parent if parent in parents or parent == "x" else None
    ordered = in_order(parents)
    places = {name: place for place, (name, _) in enumerate(ordered)}
    assert sorted(places) == sorted(parents)
    depths = dict(ordered)
    for name, parent in parents.items():
        if parent in parents:
            assert places[parent] < places[name]
            assert depths[name] == depths[parent] + 1


@dataclass(frozen=True)
class Row:
    session: int
    at: datetime
    ended_seconds: float | None = 1.0
    tenant: str | None = "key-1"
    tool: str | None = None


def test_think_times_are_between_the_end_of_a_sessions_answers_and_its_next_turn() -> None:
    rows = [Row(1, NOON), Row(2, NOON + timedelta(seconds=1)), Row(1, NOON + timedelta(seconds=4), tool="Bash")]
    assert waited(rows) == [Waited("key-1", "Bash", 3.0, NOON + timedelta(seconds=4))]
    assert waited([Row(1, NOON, 9.0), Row(1, NOON + timedelta(seconds=4))]) == [], "parallel calls wait for nothing"


def test_quantiles_are_of_measured_times_and_say_how_many_and_how_old_they_are() -> None:
    found = [Waited("t", "Bash", float(number), NOON + timedelta(seconds=number)) for number in range(1, 101)]
    (one,) = spreads(found)
    assert (one.turns, one.p50_seconds, one.p90_seconds, one.p99_seconds) == (100, 50.0, 90.0, 99.0)
    assert (one.first_at, one.last_at) == (NOON + timedelta(seconds=1), NOON + timedelta(seconds=100))
    assert spreads([]) == []


def test_made_up_names_of_tools_are_added_up_and_counted() -> None:
    found = [Waited("t", f"tool-{number}", 1.0, NOON) for number in range(MOST_TIMES + 50)]
    rows = spreads(found)
    assert len(rows) == MOST_TIMES + 1
    assert (rows[-1].tool, rows[-1].turns, rows[-1].other_tools) == ("", 50, 50)
    assert sum(row.turns for row in rows) == len(found)
