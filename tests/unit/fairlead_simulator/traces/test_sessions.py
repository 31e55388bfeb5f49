"""Sessions are inferred where a trace does not name them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow
from fairlead_simulator.traces.sessions import FASTEST_MS_PER_TOKEN, find_sessions
from fairlead_simulator.workloads import ConversationShape, generate_conversations
from fairlead_simulator.workloads.kinds import KINDS

ANSWER_MS = 10 * FASTEST_MS_PER_TOKEN


def row(*ids: int, at: float = 0.0, tail: int = 0, session: str | None = None) -> TraceRow:
    """Return a row with a prompt of these blocks, the last one with only `tail` tokens."""
    length = BLOCK_TOKENS * (len(ids) - bool(tail)) + tail
    return TraceRow(timestamp_ms=at, input_length=length, output_length=10, hash_ids=ids, session=session)


def names(*rows: TraceRow) -> list[str]:
    return list(find_sessions(rows).names)


@pytest.mark.parametrize("requests", [5, 20, 31, 32, 60, 1000])
def test_conversations_with_one_system_prompt_are_sessions_however_few_they_are(requests: int) -> None:
    rows = list(islice(generate_conversations(ConversationShape(), 0), requests))
    assert names(*rows) == [f"t{one.hash_ids[1]}" for one in rows]
    assert find_sessions(rows).shared == frozenset({0})


def test_a_next_turn_contains_the_whole_former_prompt() -> None:
    assert names(row(0, 1, 2), row(0, 1, 2, 3, at=50), row(0, 1, 2, 3, 4, at=99)) == ["t0", "t0", "t0"]
    first, second = names(row(0, 1, 2), row(0, 1, 3, 4, at=50))
    assert first != second, "only what is in front is the same"


def test_what_overlaps_in_time_is_not_one_session() -> None:
    during, after = row(0, 1, 2, at=ANSWER_MS - 0.1), row(0, 1, 2, at=ANSWER_MS)
    assert len({*names(row(0, 1), during)}) == 2
    assert len({*names(row(0, 1), after)}) == 1
    assert len({*names(row(0, 1), row(0, 1, 2))}) == 2, "equal stamps overlap"


def test_a_retry_belongs_to_its_session_and_parallel_equal_prompts_do_not() -> None:
    assert names(row(0, 1, tail=9), row(0, 1, tail=9, at=50), row(0, 1, 2, at=99)) == ["t0", "t0", "t0"]
    twins = names(row(5, tail=9), row(5, tail=9, at=1), row(5, tail=9, at=50), row(5, tail=9, at=51))
    assert twins == ["t5", "t5-2", "t5", "t5-2"]


def test_a_conversation_goes_on_after_a_parallel_equal_prompt() -> None:
    assert names(row(0, 1), row(0, 1, at=1), row(0, 1, 2, at=50), row(0, 1, 2, 3, at=99)) == ["t0", "t0-2", "t0", "t0"]


def test_a_message_edited_in_a_conversation_stays_in_its_session() -> None:
    rows = [row(0, 1), row(0, 1, 2, at=50), row(0, 1, 2, 3, at=100), row(0, 1, 2, 4, at=150), row(0, 1, 2, 4, 5, at=200)]
    assert len({*names(*rows)}) == 1


def test_parallel_branches_of_a_conversation_are_sessions_of_their_own() -> None:
    turns = [row(0, 1), row(0, 1, 2, at=50)]
    branches = [row(0, 1, 2, number, at=100) for number in (10, 20, 30)]
    followed = [row(0, 1, 2, number, number + 1, at=200) for number in (10, 20, 30)]
    found = names(*turns, *branches, *followed)
    assert found[:2] == [found[2]] * 2, "one of the branches is the next turn"
    assert len({*found}) == 3
    assert found[2:5] == found[5:]


def test_first_prompts_without_a_block_of_their_own_join_strangers_at_most_once() -> None:
    """Ten conversations take turns and never overlap; the only known part of their first prompts is the system
    prompt.
    """
    openings = [row(7, 100 + number, at=1000.0 * number, tail=9) for number in range(10)]
    seconds = [row(7, 200 + number, 300 + number, at=20_000 + 1000.0 * number) for number in range(10)]
    found = find_sessions([*openings, *seconds])
    assert 19 <= found.inferred <= 20
    assert found.largest <= 2
    assert found.shared == frozenset({7})


def test_prompts_shorter_than_a_block_are_known_by_nothing_else() -> None:
    assert len({*names(row(1, tail=5), row(2, tail=9, at=50), row(3, tail=12, at=99))}) == 3


def test_names_of_the_trace_are_kept_and_given_to_nobody_else() -> None:
    rows = [row(5, 6, session="t1"), row(1, 2, at=1), row(1, 2, 3, at=50), row(5, 6, 7, at=60), row(8, 9, at=70, session="t1")]
    found = find_sessions(rows)
    assert found.names == ("t1", "t1-2", "t1-2", "t7", "t1")
    assert (found.named, found.inferred, found.unnamed_requests, found.largest) == (1, 2, 3, 2)
    assert found.words == "1 named, 2 inferred for 3 requests that name none; the largest has 2 requests"
    assert find_sessions([]).words == "none; the largest has 0 requests"


class Talk:
    """A conversation, or a sub-agent with a prompt of its own, that sends its whole history each time."""

    def __init__(self, ids: Iterator[int], system: Sequence[int], name: str) -> None:
        self.name = name
        self._ids = ids
        self._known = (*system, *islice(ids, 1 + len(name) % 3))

    def turn(self, at: float, tail: int) -> TraceRow:
        """Return the next prompt, with a tail that is not yet a whole block."""
        self._known = (*self._known, *islice(self._ids, at % 3 > 1))
        sent = (*self._known, *islice(self._ids, bool(tail)))
        made = row(*sent, at=at, tail=tail, session=self.name)
        self._known = (*self._known, next(self._ids))  # the answer
        return made


@st.composite
def conversations(draw: st.DrawFn) -> list[TraceRow]:
    """Return conversations with a few system prompts that take turns and retry.

    No turn comes before the answer to the one before.
    """
    rng, ids = Random(draw(st.integers(0, 10**9))), count(1)
    systems = [tuple(islice(ids, size)) for size in draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))]
    talks = [Talk(ids, rng.choice(systems), f"s{number}") for number in range(draw(st.integers(1, 40)))]
    free, latest, rows, at = defaultdict[str, float](float), dict[str, TraceRow](), list[TraceRow](), 0.0
    for _ in range(draw(st.integers(1, 120))):
        talk = rng.choice(talks)
        at = max(at + rng.choice((0.0, 1.0, 3.0, 400.0)), free[talk.name])
        again = latest.get(talk.name) if rng.random() < 0.1 else None
        made = talk.turn(at, rng.choice((0, 0, 1, 500))) if again is None else replace(again, timestamp_ms=at)
        latest[talk.name] = made
        free[talk.name] = at + made.output_length * FASTEST_MS_PER_TOKEN
        rows.append(made)
    return rows


@given(conversations())
def test_conversations_that_do_not_overlap_with_themselves_are_found_exactly(rows: list[TraceRow]) -> None:
    found = find_sessions([replace(one, session=None) for one in rows])
    pairs = {(one.session, name) for one, name in zip(rows, found.names, strict=True)}
    assert len(pairs) == len({one.session for one in rows}) == found.inferred


@st.composite
def anything(draw: st.DrawFn) -> list[TraceRow]:
    """Return prompts that branch off from one another at any block, with any lengths and times."""
    rng, ids, at = Random(draw(st.integers(0, 10**9))), count(1), 0.0
    rows: list[TraceRow] = []
    for _ in range(draw(st.integers(1, 80))):
        at += rng.choice((0.0, 1.0, 30.0))
        before = rng.choice(rows).hash_ids if rows and rng.random() < 0.8 else ()
        known = before[: rng.randrange(len(before) + 1)]
        sent = (*known, *islice(ids, rng.randrange(3))) or (next(ids),)
        rows.append(replace(row(*sent, at=at, tail=rng.choice((0, 1, 500))), output_length=rng.randrange(40)))
    return rows


@given(anything())
def test_whatever_a_trace_is_like_no_session_overlaps_with_itself(rows: list[TraceRow]) -> None:
    found = find_sessions(rows)
    assert found == find_sessions(rows)
    busy_until = defaultdict[str, float](float)
    for one, name in zip(rows, found.names, strict=True):
        assert busy_until[name] <= one.timestamp_ms
        busy_until[name] = one.timestamp_ms + max(1, one.output_length) * FASTEST_MS_PER_TOKEN


@given(anything())
def test_turns_of_a_session_have_in_common_what_a_turn_was(rows: list[TraceRow]) -> None:
    """Each turn after the first contains, or repeats, the whole blocks of one of the session's two turns before."""
    turns = defaultdict[str, list[TraceRow]](list)
    for one, name in zip(rows, find_sessions(rows).names, strict=True):
        before = turns[name][-2:]
        assert not before or any(one.hash_ids[: old.full_blocks] == old.hash_ids[: old.full_blocks] for old in before)
        turns[name].append(one)


def test_agents_that_hide_their_names_are_found_again() -> None:
    """The generator's sessions sometimes overlap and forget, so more sessions are inferred, and hardly any are mixed
    up.
    """
    rows = list(islice(KINDS["agentic"].rows(None, None, 0), 3000))
    found = find_sessions([replace(one, session=None) for one in rows])
    last_of: dict[str, dict[str, int]] = {"true": {}, "found": {}}
    links: dict[str, set[tuple[int, int]]] = {"true": set(), "found": set()}
    for place, (one, name) in enumerate(zip(rows, found.names, strict=True)):
        for kind, session in (("true", one.session or ""), ("found", name)):
            if session in last_of[kind]:
                links[kind].add((last_of[kind][session], place))
            last_of[kind][session] = place
    both = len(links["true"] & links["found"])
    assert both / len(links["found"]) > 0.99
    assert both / len(links["true"]) > 0.85
