"""Following streamed answers."""

import itertools

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.answers import StreamReader, Usage, read_usage
from fairlead_router.dialects import Dialect


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
    assert reader.generated_tokens == max(0, count + done - 1)
    assert reader.usage() == Usage(count)
    assert not reader.cut


@given(st.lists(st.integers(0, 10_000), max_size=6))
def test_the_engines_own_usage_wins_over_counting(cuts: list[int]) -> None:
    whole = _event(choices=[]) * 3 + _event(usage=None) + _event(choices=[], usage=USAGE) + b"data: [DONE]\n\n"
    reader = StreamReader()
    for piece in _pieces(whole, cuts):
        reader.feed(piece)
    assert reader.usage() == Usage(7, 4, 9)


def test_usage_is_found_at_the_end_of_a_long_stream() -> None:
    reader = StreamReader()
    for _ in range(3000):
        reader.feed(_event(choices=[{"delta": {"content": "word "}}]))
    reader.feed(_event(choices=[], usage=USAGE) + b"data: [DONE]\n\n")
    assert reader.usage() == Usage(7, 4, 9)


def test_a_stream_that_stops_inside_an_event_is_cut() -> None:
    reader = StreamReader()
    reader.feed(_event(choices=[]))
    assert not reader.cut
    reader.feed(b'data: {"cho')
    assert reader.cut


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (orjson.dumps({"choices": [], "usage": USAGE}), Usage(7, 4, 9)),
        (orjson.dumps({"usage": {"completion_tokens": 3}}), Usage(3)),
        (orjson.dumps({"usage": {"completion_tokens": 3, "prompt_tokens_details": None}}), Usage(3)),
        (orjson.dumps({"usage": None}), None),
        (orjson.dumps({"usage": {"completion_tokens": "three"}}), None),
        (orjson.dumps({"usage": {"completion_tokens": 2**63 - 1}}), None),
        (orjson.dumps({"usage": {"completion_tokens": -1}}), None),
        (b'{"usage": {"completion_tokens": 1e300}}', None),
        (orjson.dumps({"usage": {"input_tokens": 5, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 2}}}), Usage(3, 2, 5)),
        (orjson.dumps({"usage": {"input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": 2}}), Usage(3, 2)),
        (orjson.dumps({"type": "response.completed", "response": {"usage": {"output_tokens": 3}}}), Usage(3)),
        (orjson.dumps({}), None),
        (b"not json", None),
    ],
)
def test_usage_is_read_leniently(document: bytes, expected: Usage | None) -> None:
    assert read_usage(document) == expected


@given(st.lists(st.integers(0, 100_000), max_size=12))
def test_the_usage_of_a_response_is_found_behind_any_length_of_text(cuts: list[int]) -> None:
    usage = {"input_tokens": 5, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 4}}
    response = {
        "id": "resp_1",
        "output": [{"text": '"usage": {"output_tokens": 99} ' * 2000}],
        "tools": [{"usage": {"x": 1}}],
        "usage": usage,
    }
    events: list[dict[str, object]] = [
        {"type": "response.created"},
        {"type": "response.output_text.delta", "delta": "x"},
        {"type": "response.completed", "response": response},
    ]
    whole = b"".join(b"event: %s\ndata: %s\n\n" % (str(event["type"]).encode(), orjson.dumps(event)) for event in events)
    reader = StreamReader(Dialect.RESPONSES)
    for piece in _pieces(whole, cuts):
        reader.feed(piece)
    assert reader.usage() == Usage(7, 4, 5)
    assert reader.began


@given(st.lists(st.integers(0, 40_000), max_size=8))
def test_the_usage_of_a_response_is_found_however_much_follows_it(cuts: list[int]) -> None:
    usage = {"input_tokens": 5, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 4}}
    text = '{"usage": {"output_tokens": 99}} ' * 800
    events: list[dict[str, object]] = [
        {"type": "response.created", "response": {"usage": {"input_tokens": 0, "output_tokens": 0}}},
        {"type": "response.output_text.delta", "delta": text},
        {"type": "response.completed", "response": {"id": "resp_1", "usage": usage, "output": [{"text": text}]}},
    ]
    whole = b"".join(b"event: %s\ndata: %s\n\n" % (str(event["type"]).encode(), orjson.dumps(event)) for event in events)
    reader = StreamReader(Dialect.RESPONSES)
    for piece in _pieces(whole, cuts):
        reader.feed(piece)
    assert reader.usage() == Usage(7, 4, 5)


def test_a_usage_of_zeros_at_the_beginning_is_not_the_usage_of_a_response_that_tells_none() -> None:
    reader = StreamReader(Dialect.RESPONSES)
    reader.feed(b'data: {"type":"response.created","response":{"usage":{"output_tokens":0}}}\n\n')
    for _ in range(200):
        reader.feed(b'event: response.output_text.delta\ndata: {"delta":"%s"}\n\n' % (b"x" * 100))
    assert reader.usage() == Usage(200)


@given(st.lists(st.integers(0, 300), max_size=8))
def test_the_first_token_is_seen_however_its_event_is_cut(cuts: list[int]) -> None:
    before = b'event: message_start\ndata: {"type":"message_start"}\n\nevent: ping\ndata: {"type": "ping"}\n\n'
    reader = StreamReader(Dialect.ANTHROPIC)
    for piece in _pieces(before, cuts):
        reader.feed(piece)
        assert not reader.began
    for piece in _pieces(b'event: content_block_delta\ndata: {"type":"content_block_delta"}\n\n', cuts):
        reader.feed(piece)
    assert reader.began


@pytest.mark.parametrize(
    ("dialect", "name"), [(Dialect.ANTHROPIC, b"content_block_delta"), (Dialect.RESPONSES, b"response.output_text.delta")]
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_what_was_made_of_an_answer_is_known_before_its_engine_tells(dialect: Dialect, name: bytes, end: bytes, size: int) -> None:
    said = b'data: {"type": "%s", "delta": {"text": "of a %s"}}' % (name, name)
    stream = b"event: message_start" + end + b"data: {}" + end * 2 + (b"event: " + name + end + said + end * 2) * 500
    reader = StreamReader(dialect)
    for at in range(0, len(stream), size):
        reader.feed(stream[at : at + size])
    assert reader.generated_tokens == 500
    assert reader.usage().output_tokens == 500, "of an engine that never told"
