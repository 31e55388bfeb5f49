"""Following streamed answers."""

import itertools

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.answers import StreamReader, read_usage


def _event(**fields: object) -> bytes:
    return b"data: " + orjson.dumps({"object": "chat.completion.chunk", **fields}) + b"\n\n"


def _pieces(whole: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    return [whole[a:b] for a, b in itertools.pairwise(places)]


USAGE = {"prompt_tokens": 9, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}}


@given(st.integers(0, 8), st.booleans(), st.sampled_from([b"\n\n", b"\r\n\r\n"]), st.lists(st.integers(0, 10_000), max_size=12))
def test_events_are_counted_the_same_however_they_are_cut(count: int, done: bool, mark: bytes, cuts: list[int]) -> None:
    whole = b"".join(_event(choices=[{"delta": {"content": "a\n\nb"}}]) for _ in range(count)) + (b"data: [DONE]\n\n" if done else b"")
    whole = whole.replace(b"\n\n", mark)
    reader = StreamReader()
    for piece in _pieces(whole, cuts):
        reader.feed(piece)
    assert reader.events == count + done
    assert reader.usage() == (count, None)
    assert not reader.cut


@given(st.lists(st.integers(0, 10_000), max_size=6))
def test_the_engines_own_usage_wins_over_counting(cuts: list[int]) -> None:
    whole = _event(choices=[]) * 3 + _event(usage=None) + _event(choices=[], usage=USAGE) + b"data: [DONE]\n\n"
    reader = StreamReader()
    for piece in _pieces(whole, cuts):
        reader.feed(piece)
    assert reader.usage() == (7, 4)


def test_usage_is_found_at_the_end_of_a_long_stream() -> None:
    reader = StreamReader()
    for _ in range(3000):
        reader.feed(_event(choices=[{"delta": {"content": "word "}}]))
    reader.feed(_event(choices=[], usage=USAGE) + b"data: [DONE]\n\n")
    assert reader.usage() == (7, 4)


def test_a_stream_that_stops_inside_an_event_is_cut() -> None:
    reader = StreamReader()
    reader.feed(_event(choices=[]))
    assert not reader.cut
    reader.feed(b'data: {"cho')
    assert reader.cut


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (orjson.dumps({"choices": [], "usage": USAGE}), (7, 4)),
        (orjson.dumps({"usage": {"completion_tokens": 3}}), (3, None)),
        (orjson.dumps({"usage": {"completion_tokens": 3, "prompt_tokens_details": None}}), (3, None)),
        (orjson.dumps({"usage": None}), None),
        (orjson.dumps({"usage": {"completion_tokens": "three"}}), None),
        (orjson.dumps({}), None),
        (b"not json", None),
    ],
)
def test_usage_is_read_leniently(document: bytes, expected: tuple[int, int | None] | None) -> None:
    assert read_usage(document) == expected
