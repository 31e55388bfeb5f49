"""How requests change trees and sums: a session's place is decided once, and sums do not depend on the order."""

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.decisions import RequestOutcome
from fairlead.reports.traffic import RecordedRequest
from fairlead.session_trees import Evidence, Link, total
from fairlead_api.trees.growing import Grown, Sums, figures_of, grown
from fairlead_testing.builders.turns import AT, a_turn
from fairlead_testing.examples import examples


class Stored:
    """The rows that a database keeps of several reports, by the rules of the SQL statements."""

    def __init__(self) -> None:
        self.sessions: dict[str, Grown] = {}
        self.sums: dict[tuple[str, str], Sums] = {}

    def report(self, *turns: RecordedRequest) -> None:
        names = {one for turn in turns for one in (turn.name, turn.parent)}
        forked: dict[int, list[Grown]] = {}
        for one in self.sessions.values():
            if one.reach.is_beyond_beginning and one.reach.last_block is not None:
                forked.setdefault(one.reach.last_block, []).append(one)
        growth = grown(turns, {name: one for name, one in self.sessions.items() if name in names}, forked)
        self.sessions.update(growth.sessions)
        for name, one in self.sessions.items():
            if one.root in growth.joined:
                self.sessions[name] = with_root(one, growth.joined[one.root])
        for place, sums in growth.sums.items():
            self.sums[place] = self.sums[place] + sums if place in self.sums else sums

    def place(self, name: str) -> tuple[str, str | None, Link | None, Evidence | None]:
        one = self.sessions[name]
        return one.root, one.parent, one.link, one.evidence


def with_root(one: Grown, root: str) -> Grown:
    return Grown(**{**{name: getattr(one, name) for name in Grown.__slots__}, "root": root})


def test_a_session_that_nothing_is_known_of_is_a_root() -> None:
    stored = Stored()
    stored.report(a_turn("s", 1, 2))
    assert stored.place("s") == ("s", None, None, None)


def test_what_a_client_says_is_believed_before_prompts_and_stored_as_said() -> None:
    stored = Stored()
    stored.report(a_turn("a", 1), a_turn("a", 1, 2, at=AT + 9))
    stored.report(a_turn("b", 1, 2, 3, at=AT + 20, parent="c"))
    assert stored.place("b") == ("c", "c", Link.SUB_AGENT, Evidence.SENT)
    stored.report(a_turn("d", 1, 2, 3, at=AT + 30, parent="a"))
    assert stored.place("d") == ("a", "a", Link.FORK, Evidence.SENT)


def test_a_session_that_begins_with_what_another_said_is_its_fork_in_one_report_or_in_two() -> None:
    turns = [a_turn("a", 1), a_turn("a", 1, 2, 3, at=AT + 9), a_turn("b", 1, 2, 3, 4, at=AT + 20)]
    together, apart = Stored(), Stored()
    together.report(*turns)
    apart.report(*turns[:2])
    apart.report(turns[2])
    assert together.place("b") == apart.place("b") == ("a", "a", Link.FORK, Evidence.PREFIX)


def test_sessions_of_several_tenants_are_in_one_tree_only_if_the_tenant_is_the_same() -> None:
    one, other = "1f2e3d4c5b6a7988", "8897a6b5c4d3e2f1"
    turns = [
        turn
        for place, tenant in enumerate((f"@{one}", f"@{other}", ""))
        for turn in (a_turn(f"a{tenant}", 1, at=AT + place), a_turn(f"a{tenant}", 1, 2, 3, at=AT + 9 + place))
    ]
    forks = [a_turn(f"b{tenant}", 1, 2, 3, 4, at=AT + 20) for tenant in (f"@{one}", f"@{other}", "")]
    together, apart = Stored(), Stored()
    together.report(*turns, *forks)
    apart.report(*turns)
    apart.report(*forks)
    for stored in (together, apart):
        assert {name: place.root for name, place in stored.sessions.items() if name[0] == "b"} == {
            f"b@{one}": f"a@{one}",
            f"b@{other}": f"a@{other}",
            "b": "a",
        }


def test_sessions_with_one_scaffold_stay_apart_however_often_they_came() -> None:
    stored = Stored()
    for number in range(20):
        stored.report(a_turn(f"s{number}", 1, 2, 3, at=AT + number))
    assert {one.root for one in stored.sessions.values()} == set(stored.sessions)


def test_a_parent_that_comes_after_its_children_brings_them_below_its_own() -> None:
    stored = Stored()
    stored.report(a_turn("leaf", 5, parent="middle"))
    assert stored.place("leaf")[0] == "middle"
    stored.report(a_turn("middle", 6, at=AT + 1, parent="top"))
    assert {one.root for one in stored.sessions.values()} == {"top"}


NAMES = st.sampled_from("abcdef")
CLAIMS = st.lists(st.tuples(NAMES, st.one_of(st.none(), NAMES)), min_size=1, max_size=12)


@given(CLAIMS, st.integers(1, 12))
@examples(300)
def test_made_up_parents_form_no_cycle_and_every_session_has_the_root_of_its_parent(claims: list[tuple[str, Any]], cut: int) -> None:
    stored = Stored()
    turns = [a_turn(name, number, at=AT + number, parent=parent) for number, (name, parent) in enumerate(claims)]
    stored.report(*turns[:cut])
    stored.report(*turns[cut:])
    for name, one in stored.sessions.items():
        seen = {name}
        while one.parent is not None and one.parent in stored.sessions:
            assert one.parent not in seen
            seen.add(one.parent)
            assert stored.sessions[one.parent].root == one.root
            one = stored.sessions[one.parent]


TURNS = st.lists(
    st.builds(
        a_turn,
        NAMES,
        at=st.integers(0, 1000).map(lambda seconds: AT + seconds),
        task=st.sampled_from([None, "t", "u"]),
        parent=st.one_of(st.none(), NAMES),
        priority_class=st.sampled_from([None, "batch", "default"]),
        outcome=st.sampled_from(RequestOutcome),
        sent_seconds=st.one_of(st.none(), st.floats(0, 5)),
        ended_seconds=st.one_of(st.none(), st.floats(0, 90)),
        instance=st.sampled_from([None, "a"]),
        cached_tokens=st.one_of(st.none(), st.integers(0, 100)),
        output_tokens=st.one_of(st.none(), st.integers(0, 5000)),
    ),
    max_size=12,
)


@given(TURNS, st.integers(0, 12), st.randoms(use_true_random=False))
@examples(300)
def test_sums_of_a_tree_are_those_of_its_turns_whatever_the_order_of_arrival(
    turns: list[RecordedRequest], cut: int, dice: random.Random
) -> None:
    shuffled = list(turns)
    dice.shuffle(shuffled)
    one, other = Stored(), Stored()
    one.report(*turns)
    other.report(*shuffled[:cut])
    other.report(*shuffled[cut:])
    assert one.sums == other.sums
    assert total(sums.figures for sums in one.sums.values()) == total(map(figures_of, turns))
    for name in one.sessions:
        own = [figures_of(turn) for turn in turns if turn.name == name]
        assert total(sums.figures for (session, _), sums in one.sums.items() if session == name) == total(own)


def test_a_refused_turn_counts_its_wait_and_no_token() -> None:
    refused = a_turn("s", 1, 2, outcome=RequestOutcome.REFUSED, instance=None, sent_seconds=None, cached_tokens=None, output_tokens=None)
    figures = figures_of(refused)
    assert (figures.turns, figures.refusals, figures.prompt_tokens, figures.output_tokens) == (1, 1, 0, 0)
    assert (figures.queued_microseconds, figures.model_microseconds) == (2_000_000, 0)
