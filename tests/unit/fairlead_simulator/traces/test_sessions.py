from itertools import islice

from fairlead_simulator.traces.rows import TraceRow
from fairlead_simulator.traces.sessions import SessionIndex
from fairlead_simulator.workloads import ConversationShape, generate_conversations


def row(*ids: int) -> TraceRow:
    return TraceRow(timestamp_ms=0, input_length=512 * len(ids), output_length=1, hash_ids=ids)


def test_rows_that_share_blocks_beyond_the_system_block_are_one_session() -> None:
    rows = list(islice(generate_conversations(ConversationShape(), 0), 1000))
    sessions = SessionIndex.of(rows)
    assert sessions.shared == frozenset({0})
    assert all(sessions.key(one) == one.hash_ids[1] for one in rows)


def test_a_long_shared_prefix_is_not_a_session() -> None:
    tool = (40, 41, 42)
    rows = [row(*tool, 100 + number) for number in range(40)] + [row(7, 8), row(7, 8, 9)]
    sessions = SessionIndex.of(rows)
    assert sessions.shared == frozenset(tool)
    assert [sessions.key(one) for one in rows[:3]] == [100, 101, 102]
    assert sessions.key(rows[-1]) == sessions.key(rows[-2]) == 7


def test_a_prompt_of_nothing_but_the_shared_prefix_still_has_a_key() -> None:
    rows = [row(40, 41, 100 + number) for number in range(40)]
    assert SessionIndex.of(rows).key(row(40, 41)) == 41
    assert SessionIndex.of([]).key(row(3)) == 3
