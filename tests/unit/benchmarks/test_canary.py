"""The canary's benchmark on recorded sessions: their turns, and the tokens of them that an engine holds."""

from collections import Counter
from random import Random

import pytest
from benchmarks.canary import Turn, recorded, traffic

from fairlead_simulator.errors import SimulatorError
from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow


def row(session: str | None, *blocks: int, answer: int = 10) -> TraceRow:
    """Return a row whose prompt has these whole blocks and one more token."""
    return TraceRow(
        timestamp_ms=0.0, input_length=BLOCK_TOKENS * len(blocks) + 1, output_length=answer, hash_ids=(*blocks, 99), session=session
    )


def test_a_turn_keeps_what_the_turn_before_had_and_a_first_turn_what_others_begin_with() -> None:
    first, second = recorded([row("a", 1, 2), row("b", 1, 3), row("a", 1, 2, 4), row("a", 1, 5)])
    size = BLOCK_TOKENS
    assert first == (Turn(2 * size + 1, size, 10), Turn(3 * size + 1, 2 * size, 10), Turn(2 * size + 1, size, 10))
    assert second == (Turn(2 * size + 1, size, 10),)


def test_a_trace_without_sessions_is_refused() -> None:
    with pytest.raises(SimulatorError, match="request 2 has no session_id"):
        recorded([row("a", 1), row(None, 1)])


def test_sessions_have_the_turns_of_the_trace_and_stay_on_one_arm() -> None:
    known = recorded([row("a", 1), row("a", 1, 2), row("a", 1, 2, 3), row("b", 1)])
    samples = list(traffic(Random(1), 2000, 0.25, 0.0, known))
    turns, arms = Counter(one.session for one in samples), {(one.session, one.canary) for one in samples}
    assert set(turns.values()) <= {1, 2, 3} and {1, 3} <= set(turns.values())
    assert len(arms) == len(turns)
    assert {one.prompt_tokens for one in samples} == {BLOCK_TOKENS * count + 1 for count in (1, 2, 3)}
