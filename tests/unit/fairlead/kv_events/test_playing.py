"""The meaning of a recording's times, and the blocks that a request in flight holds."""

import pytest

from fairlead.kv_events.playing import made_at
from fairlead.kv_events.predictions import predict
from fairlead.kv_events.recordings import RecordedBatch, RecordedRequest
from fairlead.kv_events.sources import Source
from fairlead_testing.builders.kv_events import Removed, Stored

A = Source(instance="a")
PROMPT = tuple(range(13))


def batch(number: int, arrived: float, *events: Stored | Removed, stamp: float | None = None) -> RecordedBatch:
    return RecordedBatch(source=A, number=number, arrived=arrived, stamp=100.0 + arrived if stamp is None else stamp, events=events)


def request(name: str, sent: float, done: float, *, cached: int, prompt: tuple[int, ...] = PROMPT) -> RecordedRequest:
    return RecordedRequest(name=name, sent=sent, done=done, prompt_token_ids=prompt, cached_tokens=cached)


WHOLE = Stored(block_hashes=[1, 2, 3], token_ids=PROMPT[:12])


def predicted(batches: list[RecordedBatch], requests: list[RecordedRequest]) -> list[int]:
    return [each.predicted_cached_tokens for each in predict(batches, requests).predictions]


def test_the_quickest_batch_gives_the_difference_of_the_clocks() -> None:
    batches = [batch(0, 1.30, stamp=101.0), batch(1, 2.01, stamp=102.0), batch(2, 3.20, stamp=103.0)]
    assert made_at(batches) == pytest.approx([1.01, 2.01, 3.01])


@pytest.mark.parametrize("stamps", [(0.0, 0.0, 0.0), (103.0, 102.0, 101.0), (101.0, 50.0, 103.0)])
def test_stamps_that_are_no_clock_are_not_used(stamps: tuple[float, ...]) -> None:
    assert made_at([batch(number, 1.0 + number, stamp=stamp) for number, stamp in enumerate(stamps)]) == [1.0, 2.0, 3.0]


def test_a_request_in_flight_holds_its_prompt_before_its_events_say_so() -> None:
    late = batch(0, 5.0, WHOLE)
    assert predicted([late], [request("a", 1.0, 3.0, cached=0), request("b", 1.1, 3.0, cached=12)]) == [0, 12]


def test_one_that_was_answered_holds_it_until_the_next_batch() -> None:
    other = Stored(block_hashes=[9], token_ids=(7, 7, 7, 7))
    batches = [batch(0, 4.0, other)]
    requests = [request("a", 1.0, 2.0, cached=0), request("b", 3.9, 3.95, cached=12), request("c", 4.1, 4.2, cached=0)]
    assert predicted(batches, requests)[:2] == [0, 12]


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    assert predicted([batch(0, 1.0, WHOLE)], [request("a", 2.0, 3.0, cached=8, prompt=PROMPT[:12])]) == [8]


def test_a_block_that_is_removed_but_was_never_stored_was_there() -> None:
    """A later request that stores the block again shows its hash."""
    batches = [batch(40, 2.0, Removed(block_hashes=[3, 2, 1])), batch(41, 4.0, WHOLE)]
    requests = [request("a", 1.0, 1.1, cached=12), request("b", 3.5, 5.0, cached=0), request("c", 6.0, 7.0, cached=12)]
    assert predicted(batches, requests) == [12, 0, 12]


def test_blocks_before_a_parent_were_there_though_no_hash_names_them() -> None:
    """The tokens stored after the unknown parent follow only one prefix: the prompt of the request at that time."""
    batches = [batch(40, 2.05, Stored(block_hashes=[3], token_ids=PROMPT[8:12], parent_block_hash=2))]
    requests = [request("a", 1.0, 1.5, cached=8, prompt=PROMPT[:9]), request("b", 2.0, 2.1, cached=8)]
    assert predicted(batches, requests) == [8, 8]
