"""The drawing of a tree: the marks of a turn, and that the drawing fits its frame and is bounded."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.decisions import RequestOutcome
from fairlead.reports.rejections import RejectionReason
from fairlead_client.resources.trees import SessionTree, TreeSession, TreeTurn
from fairlead_testing.examples import examples
from fairlead_web.drawing.timelines import DRAWN, LANES, WIDTH, timeline, tree_in_words, turn_in_words

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def a_turn(session: str = "s", at: float = 0.0, seconds: float = 10.0, **changes: Any) -> TreeTurn:
    begun = NOON + timedelta(seconds=at)
    values: dict[str, Any] = {
        "task": None,
        "tool": None,
        "gap_seconds": None,
        "compacted": None,
        "outcome": RequestOutcome.SERVED,
        "rejection": None,
        "instance": "i0",
        "rank": None,
        "queued_seconds": 1.0,
        "ttft_seconds": 2.0,
        "prompt_tokens": 100,
        "cached_tokens": 50,
        "output_tokens": 5,
        "decision": None,
        "moved_from": None,
    }
    return TreeTurn(session=session, at=begun, ended_at=begun + timedelta(seconds=seconds), **{**values, **changes})


def a_tree(*turns: TreeTurn) -> SessionTree:
    names = list(dict.fromkeys(turn.session for turn in turns))
    sessions = [
        TreeSession(
            session=name,
            parent=None,
            link=None,
            evidence=None,
            depth=0,
            first_at=NOON,
            instance=None,
            ended_at=NOON + timedelta(minutes=2),
            moves=0,
            compactions=0,
            tool_seconds=None,
            turns=3,
            refusals=0,
            failures=0,
            prompt_tokens=0,
            cached_tokens=0,
            output_tokens=0,
            queued_seconds=0.0,
            model_seconds=30.0,
        )
        for name in names
    ]
    return SessionTree(
        pool="default/chat", root="s", sessions=sessions, sessions_in_all=len(names), tasks=[], turns=list(turns), complete=True
    )


def test_a_turn_is_low_until_its_first_token_and_high_until_its_end() -> None:
    line = timeline(a_tree(a_turn()))
    low, high = line.lanes[0].marks
    assert (low.x, low.width, high.x, high.width) == (0.0, 300.0, 300.0, 700.0)
    assert low.height < high.height
    assert line.holders == (("i0", "series-0"),)
    assert low.label == "2026-11-30 12:00:00 UTC, i0, first token after 2.0 s, 50.0 % of the prompt cached"


def test_a_refusal_and_a_move_have_marks_of_their_own() -> None:
    refused = a_turn(instance=None, outcome=RequestOutcome.REFUSED, rejection=RejectionReason.QUEUE_FULL, tool="Bash")
    moved = a_turn(at=60.0, instance="i1", moved_from="i0")
    kinds = [mark.kind for mark in timeline(a_tree(refused, moved)).lanes[0].marks]
    assert kinds == ["turn-refused", "series-0", "series-0", "turn-moved"]
    assert "after Bash" in turn_in_words(refused) and "queue full" in turn_in_words(refused)


def test_a_tree_without_turns_has_no_drawing_and_says_nothing() -> None:
    assert timeline(a_tree()).lanes == ()
    assert tree_in_words(a_tree()) == ""


def test_a_sentence_says_how_much_of_the_time_engines_worked() -> None:
    told = tree_in_words(a_tree(a_turn(), a_turn(at=40.0, gap_seconds=30.0)))
    assert told == (
        "One session had 3 turns within 2 min; engines worked 30 s for them. The longest wait between two turns of a session was 30 s."
    )


@given(
    st.lists(
        st.builds(
            a_turn,
            st.integers(0, 40).map(str),
            at=st.floats(0, 90_000),
            seconds=st.floats(0, 4000),
            ttft_seconds=st.one_of(st.none(), st.floats(0, 5000)),
            queued_seconds=st.one_of(st.none(), st.floats(0, 5000)),
            instance=st.sampled_from([None, *(f"i{number}" for number in range(12))]),
        ),
        max_size=60,
    )
)
@examples(100)
def test_every_mark_lies_within_the_drawing_which_has_bounds(turns: list[TreeTurn]) -> None:
    line = timeline(a_tree(*turns))
    assert len(line.lanes) <= LANES and line.turns <= DRAWN
    for mark in (mark for lane in line.lanes for mark in lane.marks):
        assert 0 <= mark.x <= WIDTH and mark.width > 0
        assert 0 <= mark.y <= mark.y + mark.height <= 16
