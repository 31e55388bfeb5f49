"""The tokens in an event of a stream, estimated from engines' counts of complete streams."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead_router.metrics.endings import Ending
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.settling import FEWEST_EVENTS, MOST_PER_EVENT, EventSizes, Settling
from fairlead_router.pools.tickets import Ticket
from fairlead_router.pools.traffic_recording import TrafficRecording
from fairlead_router.protocols.answers import StreamReader
from fairlead_testing.examples import examples

REQUEST = RoutingRequest(id="left", arrived_at=0.0, prompt_tokens=1, blocks=(), first_bytes_hash=0)


def stream(events: int, tokens: int | None) -> StreamReader:
    """Return the reader of a stream with this number of events with content, whose engine counts these tokens at its
    end.
    """
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


@pytest.mark.parametrize("period", [2, 4, 8])
def test_streams_are_observed_whatever_the_period_with_which_they_come(period: int) -> None:
    for phase in range(period):
        settling = Settling(RouterMetrics().pool("ns/p"), TrafficRecording(0.0))
        for number in range(100 * period):
            ticket = Ticket(replace(REQUEST, id=f"router-0-{number:x}"))
            ticket.stream = stream(20, 200 if number % period == phase else 20)
            settling.end(ticket, Ending.SERVED, 1.0)
        left = Ticket(REQUEST)
        left.stream = stream(100, None)
        usage = settling.part(left)
        assert usage is not None
        assert usage.output_tokens > 105, "those with ten tokens an event count among those with one"


@pytest.mark.parametrize(("events", "limit", "tokens"), [(5, 0, 50), (5, 100, 50), (5, 12, 12), (5, 3, 5)])
def test_an_estimate_stays_within_the_limit_that_the_request_sets(events: int, limit: int, tokens: int) -> None:
    settling = Settling(RouterMetrics().pool("ns/p"), TrafficRecording(0.0))
    complete = Ticket(replace(REQUEST, id="complete"))
    complete.stream = stream(20, 200)
    settling.end(complete, Ending.SERVED, 1.0, complete.stream.usage())
    left = Ticket(replace(REQUEST, max_output_tokens=limit))
    left.stream = stream(events, None)
    usage = settling.part(left)
    assert usage is not None
    assert usage.output_tokens == tokens
