"""The tokens in an event of a stream, by what engines counted of complete ones."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.pools.settling import FEWEST_EVENTS, MOST_PER_EVENT, EventSizes
from fairlead_router.protocols.answers import StreamReader
from fairlead_testing.examples import examples


def stream(events: int, tokens: int | None) -> StreamReader:
    """A stream of this number of events with content, whose engine counts these tokens at its end."""
    reader = StreamReader()
    for number in range(events):
        reader.feed(b'data: {"choices": [{"index": 0, "delta": {"content": "%d"}}]}\n\n' % number)
    if tokens is not None:
        reader.feed(b"data: %s\n\n" % json.dumps({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": tokens}}).encode())
    return reader


@examples(200)
@given(st.lists(st.tuples(st.integers(0, 40), st.none() | st.integers(0, 4000)), max_size=20), st.integers(0, 100))
def test_an_estimate_is_never_below_the_number_of_events_nor_far_above_it(seen: list[tuple[int, int | None]], left_at: int) -> None:
    sizes = EventSizes()
    for events, tokens in seen:
        sizes.observe(stream(events, tokens))
    left = stream(left_at, None)
    assert left.generated_tokens <= left.estimated_tokens(sizes.mean) <= left_at * MOST_PER_EVENT
    assert stream(left_at, 7).estimated_tokens(sizes.mean) == 7, "what the engine counted stays"


@pytest.mark.parametrize(
    ("events", "tokens", "mean"),
    [(20, 200, 10.0), (20, 20, 1.0), (20, 5, 1.0), (20, None, 1.0), (FEWEST_EVENTS - 1, 70, 1.0), (20, 20 * MOST_PER_EVENT + 1, 1.0)],
)
def test_only_an_answer_that_came_as_it_was_made_says_how_many_tokens_an_event_has(events: int, tokens: int | None, mean: float) -> None:
    sizes = EventSizes()
    sizes.observe(stream(events, tokens))
    assert sizes.mean == mean


def test_events_after_the_newest_count_are_estimated_and_those_before_it_are_not() -> None:
    reader = stream(20, 200)
    assert reader.counted == (200, 20)
    reader.feed(b'data: {"choices": [{"index": 0, "delta": {"content": "more"}}]}\n\n')
    assert reader.counted is None
    assert (reader.generated_tokens, reader.estimated_tokens(10.0)) == (201, 210)
