"""Answers made to be costly cost no more than their bytes, and long answers are still understood."""

from typing import Any

import orjson
import pytest

from fairlead_router.protocols import answers
from fairlead_router.protocols.answers import EVENT_BYTES, StreamReader, read_whole
from fairlead_testing.steps import LINE, work_of

TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
SIZE = 32_768
BLANKS = {"LF": b"\n", "CRLF": b"\r\n", "CR": b"\r", "comments": b":\n\n", "long comments": b": still here\r\n\r\n"}


@pytest.mark.parametrize("name", BLANKS)
@pytest.mark.parametrize("whole", [False, True])
def test_blank_lines_and_comments_are_skipped_together(name: str, whole: bool) -> None:
    piece = BLANKS[name] * (SIZE // len(BLANKS[name]))
    reader = StreamReader(whole=whole)
    reader.feed(TEXT)
    assert work_of(lambda: reader.feed(piece)) < 100 * LINE
    assert reader.feed(TEXT).endswith(TEXT)
    assert reader.events == 2


@pytest.mark.parametrize("name", BLANKS)
@pytest.mark.parametrize("cut", range(1, 12))
def test_an_event_between_blank_lines_and_comments_is_heard_however_it_is_cut(name: str, cut: int) -> None:
    stream = BLANKS[name] * 3 + TEXT + BLANKS[name] * 3 + TEXT + b"data: [DONE]\n\n"
    for whole in (False, True):
        reader = StreamReader(whole=whole)
        shown = b"".join(reader.feed(stream[at : at + cut]) for at in range(0, len(stream), cut)) + reader.end()
        assert shown == stream
        assert (reader.events, reader.generated_tokens) == (3, 2)


def test_failures_after_a_failure_are_not_kept_without_end() -> None:
    reader = StreamReader(whole=True)
    for _ in range(100):
        reader.feed(b'data: {"error":{"message":"x"}}\n\n' * 1000)
    assert reader.withheld.startswith(b"data: ") and len(reader.withheld) < EVENT_BYTES + 100


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", b'data: {"error":{"message":"x"}}\n\n'])
@pytest.mark.parametrize("cuts", [1, 2, 4])
def test_text_after_the_end_or_a_failure_counts_for_nothing_however_it_is_cut(end: bytes, cuts: int) -> None:
    stream = [TEXT, end, TEXT + TEXT]
    reader = StreamReader(whole=True)
    pieces = {1: [b"".join(stream)], 2: [stream[0], stream[1] + stream[2]], 4: [*stream[:2], TEXT, TEXT]}[cuts]
    shown = b"".join(map(reader.feed, pieces)) + reader.end()
    if b"error" in end:
        assert shown == TEXT, "another engine goes on from here"
    else:
        assert reader.generated_tokens == 1


LONG = b"x" * 100_000
ANSWERS = {
    "a chat": (b'{"id":"a","choices":[{"message":{"content":"%s"},"finish_reason":"stop"}],"usage":{"completion_tokens":7}}' % LONG, ""),
    "a chat given up": (b'{"choices":[{"message":{"content":"%s"},"finish_reason":"abort"}]}' % LONG, "gave up"),
    "a message": (b'{"type":"message","role":"assistant","content":"%s","stop_reason":"end_turn"}' % LONG, ""),
    "a message without a reason": (
        b'{"type":"message","role":"assistant","content":"%s","stop_reason":null}' % LONG,
        "without a stop_reason",
    ),
    "embeddings": (b'{"data":[{"embedding":[%s0]}]}' % (b"0.125," * 20_000), ""),
    "embeddings that are not numbers": (b'{"data":[{"embedding":[%sNaN]}]}' % (b"0.125," * 20_000), ""),
    "an error": (b'{"error":{"message":"out of memory"},"trace":"%s"}' % LONG, "out of memory"),
    "an error too long to be read": (b'{"error":["%s"]}' % LONG, "too long"),
    "a failed response": (b'{"status":"failed","error":{"message":"broke"},"output":"%s"}' % LONG, "broke"),
    "nothing": (b'{"choices":[],"detail":"nobody is here","prompt_logprobs":"%s"}' % LONG, "nobody is here"),
    "the beginning of a document": (b'{"choices":[{"message":{"content":"%s' % LONG, "ends before its JSON"),
    "the beginning of a list": (b'{"data":[{"embedding":[%s1]}' % (b"0.125," * 20_000), "ends before its JSON"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_long_document_is_judged_by_its_small_fields(name: str) -> None:
    body, words = ANSWERS[name]
    said = read_whole(body)
    assert words in ("" if said.failure is None else said.failure.message) and (said.failure is None) == (not words)
    if name == "a chat":
        assert said.usage is not None and said.usage.output_tokens == 7 and said.response_id == "a"


JSON = b"application/json"
BEFORE: tuple[dict[str, Any], ...] = (
    {}, {"id": "a", "model": "m"}, {"usage": {"prompt_tokens": 3}}, {"object": "list"}, {"error": None}, {"meta_info": {"id": "a"}},
    {"error": {"message": "broke"}}, {"object": "error"}, {"status": "completed"}, {"choices": []}, {"detail": "nobody"},
)  # fmt: skip
LARGE: tuple[dict[str, Any], ...] = (
    {"results": [{"index": 0, "relevance_score": 0.5, "document": {"text": ""}}]}, {"text": ""}, {"embedding": [0.5, ""]},
    {"predictions": [""]}, {"prompt_logprobs": [""]}, {"metadata": {"a": ""}}, {"trace": ""}, {"message": ""}, {"detail": [""]},
)  # fmt: skip


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("large", LARGE)
@pytest.mark.parametrize("blank", [b"", b" "])
def test_a_document_of_any_form_is_judged_alike_however_long_it_is(before: dict[str, Any], large: dict[str, Any], blank: bytes) -> None:
    short, long = (orjson.dumps({**before, **large}).replace(b'""', b'"%s"' % text).replace(b'":', b'":' + blank) for text in (b"x", LONG))
    assert len(short) < 1000 and len(long) > 65_536
    assert (read_whole(short, kind=JSON).failure is None) == (read_whole(long, kind=JSON).failure is None)


@pytest.mark.parametrize("size", [100, 200_000])
def test_what_is_not_json_as_it_says_is_no_answer_however_long_it_is(size: int) -> None:
    failure = read_whole(b"\x1f\x8b" + b"x" * size, kind=JSON).failure
    assert failure is not None and "not JSON" in failure.message


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices":[' + b"{}," * 100_000 + b"{}]}",
        b'{"error":[' + b"[]," * 100_000 + b"[]]}",
        b'{"usage":{"a":[' + b"{}," * 100_000 + b"{}]}}",
        b'{"output":[' + b'"a",' * 100_000 + b"NaN]}",
        b'{"message":{' + b'"a":1,' * 100_000 + b'"b":2}}',
    ],
)
def test_a_long_document_of_many_small_values_is_not_decoded(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(answers, "decoded", lambda data: sizes.append(len(data)))
    assert work_of(lambda: read_whole(body)) < 300 * LINE
    assert max(sizes, default=0) <= 65_536
