"""Figures read from streamed and whole answers, compared with a slow reader that decodes every event."""

from __future__ import annotations

import itertools
import json
import re
import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.protocols import answers
from fairlead_router.protocols.answers import EVENT_BYTES, Failure, LongAnswer, StreamReader, Usage, read_whole, usage_of
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.squeezing import Squeezed

OPENAI, ANTHROPIC, RESPONSES = Dialect.OPENAI, Dialect.ANTHROPIC, Dialect.RESPONSES
USAGE = {"prompt_tokens": 9, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}}
DONE = "data: [DONE]\n\n"


def event(document: object, name: str = "", *, space: str = " ", compact: bool = True) -> str:
    separators = (",", ":") if compact else None
    head = f"event:{space}{name}\n" if name else ""
    return f"{head}data:{space}{json.dumps(document, separators=separators, ensure_ascii=False)}\n\n"


def named(document: dict[str, Any]) -> str:
    return event(document, document["type"])


def chunk(content: str | None = None, reason: str | None = None, index: int = 0, **more: Any) -> str:
    delta = {} if content is None else {"content": content}
    return event({"id": "c", "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}], **more})


def choice(reason: str | None = None, **fields: Any) -> str:
    return event({"choices": [{"index": 0, "finish_reason": reason, **fields}]})


def pieces(whole: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    return [whole[a:b] for a, b in itertools.pairwise(places)]


def read(
    text: str | bytes, dialect: Dialect = OPENAI, cuts: list[int] | None = None, *, hides_usage: bool = False
) -> tuple[StreamReader, bytes]:
    whole = text.encode() if isinstance(text, str) else text
    reader = StreamReader(dialect, hides_usage=hides_usage)
    shown = b"".join(reader.feed(piece) for piece in pieces(whole, cuts or [])) + reader.end()
    return reader, shown


CUTS = st.lists(st.integers(0, 100_000), max_size=12)
TEXT = st.text(max_size=30) | st.sampled_from(
    [
        '{"error": {"message": "x"}}',
        '"usage": {"completion_tokens": 99}',
        '"error"',
        "usage",
        "error",
        "[DONE]",
        "\n\ndata: [DONE]\n\n",
        "\\",
        '"',
        'x\\"',
    ]
)


# ── the reference: every event by itself, by the rules of server-sent events ──


def blocks(whole: bytes) -> list[tuple[str, str, bytes]]:
    """Return the name, data and bytes of each event."""
    text, found, at = whole, [], 0
    for end in re.finditer(rb"(?:\r\n|\n|\r(?!\n)){2}", text):
        found.append(text[at : end.end()])
        at = end.end()
    if text[at:]:
        found.append(text[at:])
    read = []
    for raw in found:
        lines = raw.decode().removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
        fields = [(line.partition(":")[0], line.partition(":")[2].removeprefix(" ")) for line in lines]
        name = next((value for field, value in reversed(fields) if field == "event"), "")
        read.append((name, "\n".join(value for field, value in fields if field == "data"), raw))
    return read


class Reference:
    """The figures of a stream of a chat's chunks, read by decoding every event."""

    def __init__(self, whole: bytes) -> None:
        self.began = self.failed = self.done = False
        self.deltas = self.told_at = 0
        self.told: int | None = None
        self.shown = b""
        opened: set[int] = set()
        closed: set[int] = set()
        for _, data, raw in blocks(whole):
            self.shown += raw
            if not data or self.done or self.failed:
                continue
            if data == "[DONE]":
                self.done = True
                continue
            document = json.loads(data)
            if document.get("error"):
                self.failed = True
                continue
            content = False
            for part in document["choices"]:
                opened.add(part["index"])
                if part["finish_reason"]:
                    closed.add(part["index"])
                content = content or any(value for name, value in part["delta"].items() if name != "role")
            self.began = self.began or content
            self.deltas += content
            if document.get("usage"):
                self.told, self.told_at = document["usage"]["completion_tokens"], self.deltas
                if not document["choices"]:
                    self.shown = self.shown.removesuffix(raw)
        self.finished = (self.done and (self.began or bool(closed))) or (bool(closed) and closed >= opened)


COMMENT = st.sampled_from([": keep-alive\n\n", ":\n\n", "\n\n", "event: ping\n\n", "retry: 3\n\n"])
CHUNK = st.one_of(
    st.builds(lambda text: chunk(text), TEXT),
    st.builds(
        lambda text: event({"id": "d", "choices": [{"index": 0, "delta": {"reasoning": text}, "finish_reason": None}]}, compact=False), TEXT
    ),
    st.builds(lambda text: event({"choices": [{"index": 1, "delta": {"content": text}, "finish_reason": None}]}, space=""), TEXT),
    st.builds(lambda text: chunk(text, usage={"completion_tokens": 12}), TEXT),
    st.builds(lambda text: chunk(text, usage=None, error=None), TEXT),
    st.just(chunk("", role="assistant")),
    st.just(chunk(None, "stop")),
    st.just(chunk("x", "length", index=1)),
    COMMENT,
)
TAIL = st.sampled_from(
    ["", DONE, event({"choices": [], "usage": USAGE}) + DONE, chunk(None, "stop") + event({"choices": [], "usage": USAGE}, compact=False) + ": bye\n\n" + DONE,
     event({"error": {"message": "boom", "code": 500}}) + DONE, "data:[DONE]", event({"error": "boom"}), event({"choices": [], "usage": USAGE})]
)  # fmt: skip


@given(st.lists(CHUNK, max_size=8), TAIL, st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(), CUTS)
def test_a_chat_says_the_same_however_it_is_cut_and_whatever_ends_its_lines(
    chunks: list[str], tail: str, end: str, marked: bool, cuts: list[int]
) -> None:
    whole = (("\ufeff" if marked else "") + "".join(chunks) + tail).replace("\n", end).encode()
    expected = Reference(whole)
    for hides_usage in (False, True):
        reader, shown = read(whole, cuts=cuts, hides_usage=hides_usage)
        assert (reader.began, reader.failure is not None, reader.generated_tokens) == (
            expected.began, expected.failed, expected.deltas if expected.told is None else expected.told + expected.deltas - expected.told_at,
        )  # fmt: skip
        assert reader.finished is (expected.finished and not expected.failed)
        assert shown == (expected.shown if hides_usage else whole)


@given(
    st.lists(st.tuples(st.sampled_from(["text_delta", "thinking_delta", "input_json_delta"]), TEXT), max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
    CUTS,
)
def test_a_message_says_the_same_however_it_is_cut(deltas: list[tuple[str, str]], end: str, cuts: list[int]) -> None:
    field = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
    events = [{"type": "content_block_delta", "index": 0, "delta": {"type": kind, field[kind]: text}} for kind, text in deltas]
    start = {
        "type": "message_start",
        "message": {
            "content": [],
            "usage": {"input_tokens": 3, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 7, "output_tokens": 1},
        },
    }
    before = (
        named(start)
        + named({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        + named({"type": "ping"})
    )
    whole = (before + "".join(named(one) for one in events)).replace("\n", end).encode()
    reader, shown = read(whole, ANTHROPIC, cuts)
    made = sum(bool(text) for _, text in deltas)
    assert (reader.began, reader.generated_tokens, reader.finished, reader.failure) == (made > 0, made, False, None)
    assert reader.usage() == Usage(made, 90, 100)
    assert shown == whole
    told = named({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 40}}) + named(
        {"type": "message_stop"}
    )
    reader, _ = read(whole + told.replace("\n", end).encode(), ANTHROPIC, cuts)
    assert (reader.finished, reader.shortfall, reader.usage()) == (True, None, Usage(40, 90, 100))


@given(st.lists(TEXT, max_size=8), st.sampled_from(["\n", "\r\n", "\r"]), CUTS)
def test_a_response_says_the_same_however_it_is_cut(texts: list[str], end: str, cuts: list[int]) -> None:
    usage = {"input_tokens": 5, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 4}}
    deltas = [{"type": "response.output_text.delta", "delta": text, "sequence_number": number} for number, text in enumerate(texts)]
    whole = named({"type": "response.created", "response": {"id": "resp_1", "error": None, "usage": {"output_tokens": 0}}})
    whole += "".join(named(delta) for delta in deltas)
    reader, shown = read(whole.replace("\n", end), RESPONSES, cuts)
    made = sum(bool(text) for text in texts)
    assert (reader.began, reader.generated_tokens, reader.finished, reader.response_id) == (made > 0, made, False, "resp_1")
    assert shown == whole.replace("\n", end).encode()
    for kind, word in (("response.completed", "completed"), ("response.incomplete", "incomplete")):
        last = named({"type": kind, "response": {"id": "resp_1", "status": word, "error": None, "usage": usage}})
        reader, _ = read((whole + last).replace("\n", end), RESPONSES, cuts)
        assert (reader.finished, reader.shortfall, reader.usage()) == (True, None, Usage(7, 4, 5))
    failed = named(
        {"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error", "message": "boom"}, "usage": usage}}
    )
    reader, _ = read((whole + failed).replace("\n", end), RESPONSES, cuts)
    assert (reader.finished, reader.failure, reader.usage().prompt_tokens) == (False, Failure("boom"), 5)


# ── the first token ──


@pytest.mark.parametrize(
    "content",
    [
        choice(delta={"content": "x"}),
        choice(delta={"role": "assistant", "content": "x"}),
        choice(delta={"content": None, "reasoning": "x"}),
        choice(delta={"content": "", "reasoning_content": "x"}),
        choice(delta={"refusal": "x"}),
        choice(delta={"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]}),
        choice(delta={"function_call": {"name": "f"}}),
        choice(delta={"audio": {"data": "AA=="}}),
        choice(text="x"),
        choice(text="", token_ids=[7]),
        choice(delta={}, token_ids=[7, 8]),
        choice("stop", text="x"),
        ": ping\ndata: " + json.dumps({"choices": [{"delta": {"content": "x"}}]}) + "\n\n",
        'data: {"choices":\ndata: [{"delta": {"content": "x"}}]}\n\n',
        'data: {"choices": [{"delta": {"content": "\\ud83d"}}]}\n\n',
        'data: {"choices": [{"delta": {"content": "x"}, "logprobs": {"token_logprobs": [NaN]}}]}\n\n',
    ],
)
def test_any_piece_of_generated_content_is_a_first_token(content: str) -> None:
    for cut in range(len(content.encode())):
        reader, _ = read(content, cuts=[cut])
        assert reader.began
        assert reader.generated_tokens == 1


@pytest.mark.parametrize(
    ("dialect", "nothing"),
    [
        (OPENAI, ": keep-alive\n\n" * 50),
        (OPENAI, choice(delta={"role": "assistant", "content": ""})),
        (OPENAI, choice(delta={"role": "assistant"})),
        (OPENAI, choice(delta={"content": None, "tool_calls": []})),
        (OPENAI, choice(text="")),
        (OPENAI, choice(text="", token_ids=[])),
        (OPENAI, event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": [1, 2]})),
        (OPENAI, event({"choices": [], "prompt_filter_results": []})),
        (OPENAI, event({"choices": None})),
        (OPENAI, "data: \n\ndata: not json\n\ndata: [1]\n\ndata: 7\n\n"),
        (OPENAI, event({"choices": [7, {"delta": 7}, {"delta": {"content": ""}, "index": [1]}]})),
        (ANTHROPIC, named({"type": "message_start", "message": {"content": []}}) + named({"type": "ping"})),
        (ANTHROPIC, named({"type": "content_block_start", "content_block": {"type": "text", "text": ""}})),
        (ANTHROPIC, named({"type": "content_block_delta", "delta": {"type": "text_delta", "text": ""}})),
        (ANTHROPIC, named({"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": "AA"}})),
        (
            RESPONSES,
            named({"type": "response.created", "response": {"output": []}}) + named({"type": "response.in_progress", "response": {}}),
        ),
        (RESPONSES, named({"type": "response.output_item.added", "item": {"type": "message", "content": []}})),
        (RESPONSES, named({"type": "response.output_text.delta", "delta": ""})),
    ],
)
def test_what_is_no_generated_content_is_no_token(dialect: Dialect, nothing: str) -> None:
    reader, _ = read(nothing, dialect)
    assert (reader.began, reader.generated_tokens, reader.finished) == (False, 0, False)
    assert reader.shortfall is not None


@pytest.mark.parametrize(
    ("dialect", "content"),
    [
        (ANTHROPIC, {"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f", "input": {}}}),
        (ANTHROPIC, {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{"}}),
        (RESPONSES, {"type": "response.output_item.added", "item": {"type": "function_call", "name": "f"}}),
        (RESPONSES, {"type": "response.function_call_arguments.delta", "delta": "{"}),
        (RESPONSES, {"type": "response.reasoning_text.delta", "delta": "hm"}),
        (RESPONSES, {"type": "response.output_text.done", "text": "all at once"}),
        (RESPONSES, {"type": "response.completed", "response": {"output": [{"type": "message"}]}}),
    ],
)
@pytest.mark.parametrize("with_name", [True, False])
def test_tools_thoughts_and_texts_begin_an_answer(dialect: Dialect, content: dict[str, Any], with_name: bool) -> None:
    reader, _ = read(named(content) if with_name else event(content), dialect)
    assert reader.began


# ── the end, and failures ──

ERROR = {"message": "KV load failed", "type": "InternalServerError", "param": None, "code": 500}


@pytest.mark.parametrize(
    ("dialect", "error", "status"),
    [
        (OPENAI, event({"error": ERROR}), 500),
        (OPENAI, event({"error": ERROR}, compact=False) + DONE, 500),
        (OPENAI, event({"error": ERROR}, "error"), 500),
        (OPENAI, event(ERROR, "error"), 500),
        (OPENAI, event({"object": "error", **ERROR}), 500),
        (OPENAI, event({"error": {"message": "KV load failed", "code": "429"}, "choices": [{"finish_reason": "error"}]}), 429),
        (OPENAI, event({"error": "KV load failed"}), 0),
        (OPENAI, event({"error": {"message": "KV load failed", "code": 200}}), 0),
        (OPENAI, event({"error": {"message": "KV load failed", "code": "9" * 5000}}), 0),
        (ANTHROPIC, event({"type": "error", "error": {"type": "overloaded_error", "message": "KV load failed"}}, "error"), 503),
        (ANTHROPIC, event({"type": "error", "error": {"type": "internal_error", "message": "KV load failed"}}), 0),
        (ANTHROPIC, event({"error": {"type": "error", "error": {"type": "BadRequestError", "message": "KV load failed"}}}), 0),
        (RESPONSES, event({"type": "error", "code": "server_error", "message": "KV load failed"}, "error"), 0),
        (
            RESPONSES,
            named({"type": "response.failed", "response": {"status": "failed", "error": {"code": "x", "message": "KV load failed"}}}),
            0,
        ),
        (RESPONSES, event({"error": ERROR}), 500),
        (RESPONSES, named({"type": "response.completed", "response": {"status": "failed", "error": ERROR}}), 500),
    ],
)
def test_an_error_event_is_a_failure_wherever_it_is_cut_and_wherever_it_stands(dialect: Dialect, error: str, status: int) -> None:
    content = {
        OPENAI: chunk("x"),
        ANTHROPIC: named({"type": "content_block_delta", "delta": {"text": "x"}}),
        RESPONSES: named({"type": "response.output_text.delta", "delta": "x"}),
    }[dialect]
    for cut in range(0, len(error), 3):
        for before in ("", content, ": ping\n\n"):
            reader, _ = read(before + error, dialect, [len(before) + cut])
            assert reader.failure == reader.shortfall == Failure("KV load failed", status)
            assert (reader.finished, reader.began) == (False, before == content)


VOIDED = {"object": "response", "status": "cancelled", "background": False, "output": [{"type": "message"}]}


@pytest.mark.parametrize(
    ("dialect", "gives_up", "why"),
    [
        (OPENAI, chunk(None, "abort"), "finish_reason abort"),
        (OPENAI, chunk("x", "error"), "finish_reason error"),
        (OPENAI, choice("abort", text=""), "finish_reason abort"),
        (OPENAI, chunk("x", "stop", 1) + chunk("", "abort"), "finish_reason abort"),
        (ANTHROPIC, named({"type": "message_delta", "delta": {"stop_reason": None, "stop_sequence": None}, "usage": {}}), "stop_reason"),
        (RESPONSES, named({"type": "response.completed", "response": VOIDED}), "cancelled"),
    ],
)
@pytest.mark.parametrize("ends", ["", DONE, named({"type": "message_stop"})])
def test_an_answer_that_its_engine_gives_up_is_a_failure_in_every_protocol(dialect: Dialect, gives_up: str, why: str, ends: str) -> None:
    reader, _ = read(gives_up + ends, dialect)
    assert reader.failure is not None
    assert why in reader.failure.message
    assert not reader.finished


def test_what_its_client_may_have_cancelled_is_no_failure() -> None:
    for response in ({**VOIDED, "background": True}, {"status": "cancelled"}):
        assert read(named({"type": "response.completed", "response": response}), RESPONSES)[0].failure is None
        assert read_whole(orjson.dumps({"id": "resp_1", **response})).failure is None


@pytest.mark.parametrize("text", ["", "\n\n", ": ping\n\n", DONE, chunk("") + DONE, event({"choices": [], "usage": USAGE}) + DONE])
def test_a_stream_without_content_and_without_a_reason_is_no_answer(text: str) -> None:
    reader, _ = read(text)
    assert reader.shortfall is not None
    assert reader.failure is None


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        (OPENAI, chunk("x") + DONE),
        (OPENAI, chunk("x") + "data: [DONE]"),
        (OPENAI, chunk("x") + chunk(None, "length") + event({"choices": [], "usage": USAGE})),
        (OPENAI, choice("length", text="") + DONE),
        (OPENAI, choice("stop", delta={})),
        (OPENAI, chunk("x", index=0) + chunk("y", index=1) + chunk(None, "stop", 1) + chunk(None, "stop", 0)),
        (OPENAI, chunk("x") + DONE + event({"error": ERROR})),
        (ANTHROPIC, named({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}) + named({"type": "message_stop"})),
        (ANTHROPIC, named({"type": "content_block_delta", "delta": {"text": "x"}}) + named({"type": "message_stop"})),
        (RESPONSES, named({"type": "response.incomplete", "response": {"status": "incomplete", "output": []}})),
        (RESPONSES, named({"type": "response.completed", "response": {"status": "completed", "output": [], "error": None}}) + DONE),
    ],
)
def test_an_answer_that_came_to_its_end_is_one_also_without_content_or_its_last_mark(dialect: Dialect, text: str) -> None:
    reader, _ = read(text, dialect)
    assert (reader.shortfall, reader.finished) == (None, True)


@given(st.permutations(range(4)), st.integers(1, 4), st.integers(0, 4))
def test_several_answers_have_come_when_each_has_ended_in_whatever_order(order: list[int], answers: int, ended: int) -> None:
    indexes = [index for index in order if index < answers][:ended]
    reader = StreamReader(OPENAI, answers=answers)
    reader.feed("".join(chunk("x", index=index) + chunk(None, "stop", index) for index in indexes).encode())
    reader.end()
    came = len(indexes) == answers
    assert (reader.finished, reader.shortfall is None) == (came, came)
    reader.feed(DONE.encode())  # an engine may make fewer
    assert reader.finished == bool(indexes)


@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC, RESPONSES])
def test_an_engine_that_answers_in_chunks_of_a_chat_has_answered_whatever_the_protocol(dialect: Dialect) -> None:
    reader, _ = read(chunk("") + chunk("a") + chunk("b") + event({"choices": [], "usage": USAGE}) + DONE, dialect)
    assert (reader.began, reader.finished, reader.shortfall, reader.usage()) == (True, True, None, Usage(7, 4, 9))


@pytest.mark.parametrize(
    "text",
    [
        chunk("x"),
        chunk("x", index=0) + chunk("y", "stop", index=1),
        chunk("x") + 'data: {"cho',
        chunk("x") + ": ping\n\n",
        chunk("x", "") + chunk("y", ""),
    ],
)
def test_a_stream_cut_after_content_is_no_whole_answer(text: str) -> None:
    reader, _ = read(text)
    assert reader.began
    assert reader.shortfall is not None


def test_a_client_has_had_part_of_an_event_only_where_it_was_passed_on() -> None:
    for hides_usage, cut in ((False, True), (True, False)):
        reader = StreamReader(hides_usage=hides_usage)
        reader.feed(chunk("x").encode())
        assert not reader.cut
        reader.feed(b'data: {"id"')
        assert reader.cut is cut
    reader.feed(b': 1, "choices": [{')
    assert reader.cut, "with a choice it has not only counts"
    for hides_usage in (False, True):
        for text in (chunk("x") + "data: ", "data: {" + "x" * EVENT_BYTES):
            assert read(text, hides_usage=hides_usage)[0].cut
        assert not read(chunk("x"), hides_usage=hides_usage)[0].cut


# ── usage ──


@given(st.integers(0, 3), st.integers(0, 60_000), st.booleans(), CUTS)
def test_usage_is_read_wherever_in_its_event_it_stands(place: int, size: int, compact: bool, cuts: list[int]) -> None:
    for filler in ("y" * size, ['"usage": {"completion_tokens": 99}'] * (size // 60)):
        document: dict[str, Any] = {"id": "c", "choices": [], "metadata": {"x": filler}, "other": [{"usage": {"completion_tokens": 98}}]}
        fields = list(document.items())
        fields.insert(place, ("usage", USAGE))
        reader, shown = read(chunk("x") + event(dict(fields), compact=compact) + DONE, cuts=cuts, hides_usage=True)
        assert reader.usage() == Usage(7, 4, 9)
        assert shown.decode() == chunk("x") + DONE


@pytest.mark.parametrize("size", [EVENT_BYTES, 3 * EVENT_BYTES])
@pytest.mark.parametrize("step", [7_001, 100_000, 10_000_000])
def test_the_usage_of_an_event_too_large_to_hold_is_read_before_and_behind_its_text(size: int, step: int) -> None:
    usage = {"input_tokens": 5, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 4}}
    text = '{"usage": {"output_tokens": 99}} \\ " ] [ ' * (size // 40)
    for fields in ({"usage": usage, "output": [{"text": text}]}, {"output": [{"text": text}], "instructions": text, "usage": usage}):
        document = {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", **fields}}
        whole = (named({"type": "response.output_text.delta", "delta": "x"}) + named(document) + DONE).encode()
        reader = StreamReader(RESPONSES)
        assert b"".join(reader.feed(whole[at : at + step]) for at in range(0, len(whole), step)) + reader.end() == whole
        assert (reader.usage(), reader.finished, reader.events) == (Usage(7, 4, 5), True, 3)


def test_a_large_piece_of_content_is_content_and_its_stream_goes_on_behind_it() -> None:
    for step in (1000, 65_536, 10_000_000):
        whole = (chunk("z" * 1_000_000) + chunk("y", "stop") + event({"choices": [], "usage": USAGE}) + DONE).encode()
        reader = StreamReader(hides_usage=True)
        shown = b"".join(reader.feed(whole[at : at + step]) for at in range(0, len(whole), step)) + reader.end()
        assert (reader.began, reader.finished, reader.usage().output_tokens) == (True, True, 7)
        assert shown == whole.replace(event({"choices": [], "usage": USAGE}).encode(), b"")


def test_no_more_of_an_event_is_kept_than_the_bound_however_large_it_is() -> None:
    reader = StreamReader()
    reader.feed(b'data: {"choices": [{"delta": {"content": "')
    piece = b"x" * 100_000
    tracemalloc.start()
    try:
        for _ in range(200):
            reader.feed(piece)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < EVENT_BYTES
    assert peak < 4 * EVENT_BYTES


def test_the_newest_figures_count_and_content_since_then_is_added() -> None:
    text = chunk("a", usage={"completion_tokens": 10, "prompt_tokens": 5}) + chunk("b", usage={"completion_tokens": 20}) + chunk("c")
    reader, _ = read(text)
    assert reader.usage() == Usage(21, None, 5)
    reader, _ = read(text + event({"choices": [], "usage": {"completion_tokens": 30}}) + event({"choices": [], "usage": None}) + DONE)
    assert reader.usage() == Usage(30, None, 5)
    reader, _ = read(chunk("a") * 3 + event({"choices": [], "usage": {"completion_tokens": 0, "prompt_tokens": 5}}) + DONE)
    assert reader.usage() == Usage(0, None, 5), "an engine's zero is a figure"
    reader, _ = read(text + event({"choices": [], "usage": {"completion_tokens": 0, "prompt_tokens": 0}}) + DONE)
    assert reader.usage().output_tokens == 20, "but it takes nothing back"


def test_figures_at_the_end_of_a_message_win_over_those_at_its_beginning() -> None:
    start = named({"type": "message_start", "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 1, "output_tokens": 1}}})
    usage = {"input_tokens": 10, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 10, "output_tokens": 4}
    reader, _ = read(start + named({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}), ANTHROPIC)
    assert reader.usage() == Usage(4, 80, 100)


@given(st.lists(TEXT.filter(bool), min_size=1, max_size=6), st.booleans(), CUTS)
def test_a_client_that_did_not_ask_gets_all_but_the_event_of_counts(texts: list[str], compact: bool, cuts: list[int]) -> None:
    before = "".join(chunk(text) for text in texts) + chunk(None, "stop")
    counts = event({"id": "c", "choices": [], "usage": USAGE}, compact=compact)
    for end in ("\n", "\r\n", "\r"):
        reader, shown = read((before + counts + DONE).replace("\n", end), cuts=cuts, hides_usage=True)
        assert shown.decode() == (before + DONE).replace("\n", end)
        assert reader.usage() == Usage(7, 4, 9)


def said(reader: StreamReader) -> tuple[object, ...]:
    return reader.events, reader.generated_tokens, reader.began, reader.finished, reader.failure, reader.usage()


@given(st.lists(st.builds(chunk, TEXT) | st.builds(chunk, TEXT) | st.builds(chunk, TEXT) | CHUNK, max_size=12), TAIL, st.booleans(), CUTS)
def test_events_that_come_together_say_what_they_say_one_by_one(events: list[str], tail: str, hides_usage: bool, cuts: list[int]) -> None:
    """Where many events differ only in their text, the reader counts them without decoding each."""
    one_by_one = StreamReader(hides_usage=hides_usage)
    shown = b"".join(one_by_one.feed(each.encode()) for each in [*events, tail]) + one_by_one.end()
    together, same = read("".join(events) + tail, cuts=cuts, hides_usage=hides_usage)
    assert (same, *said(together)) == (shown, *said(one_by_one))


NULLS = st.lists(st.sampled_from(["usage", "error", "logprobs", "matched_stop", "token_ids"]), max_size=3, unique=True)


def engines_chunk(text: str, role: str | None, in_delta: list[str], in_choice: list[str], behind: list[str]) -> str:
    delta = ({} if role == "" else {"role": role}) | {"content": text} | dict.fromkeys(in_delta)
    made = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": delta, **dict.fromkeys(in_choice), "finish_reason": None}
    return event({**made, "choices": [choice], **dict.fromkeys(behind)})


EXTRAS: dict[str, Any] = {
    "tool_calls": [{"index": 0, "function": {"arguments": '{"usage": {"completion_tokens": 5}}'}}],
    "refusal": "no",
    "reasoning_content": 'it says "content":"x"',
}
SHAPES = st.builds(
    lambda text, extra, reason, logprobs, more: event(
        {
            "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [
                {"index": 0, "delta": {"content": text, **({extra: EXTRAS[extra]} if extra else {})}, "logprobs": logprobs, "finish_reason": reason}
            ], **more,
        }
    ),
    TEXT, st.sampled_from(["", *EXTRAS]), st.sampled_from([None, None, "stop"]),
    st.sampled_from([None, {"content": [{"token": "a", "logprob": -0.5, "top_logprobs": []}]}]),
    st.sampled_from([{}, {}, {"usage": None}, {"usage": USAGE}]),
)  # fmt: skip
"""Events with more than text: a tool's call, reasoning, the reason of the end, log-probabilities, counts."""
ENGINES = st.builds(engines_chunk, TEXT, st.sampled_from(["", None, "assistant"]), NULLS, NULLS, NULLS)


@given(st.lists(ENGINES | CHUNK, max_size=8), TAIL, st.booleans(), CUTS)
def test_an_event_known_by_its_bytes_says_what_decoding_says(events: list[str], tail: str, hides_usage: bool, cuts: list[int]) -> None:
    text = "".join(events) + tail
    known, shown = read(text, cuts=cuts, hides_usage=hides_usage)
    spaced = text.replace('{"id":', '{ "id":')  # is decoded, and means the same
    slow, _ = read(spaced, cuts=cuts, hides_usage=hides_usage)
    assert said(known) == said(slow)
    assert hides_usage or shown.decode() == text


@given(st.lists(ENGINES | SHAPES | CHUNK, max_size=10), TAIL, st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(), CUTS)
def test_events_as_engines_write_them_say_what_a_reader_of_json_reads(
    events: list[str], tail: str, line_end: str, hides_usage: bool, cuts: list[int]
) -> None:
    whole = ("".join(events) + tail).replace("\n", line_end).encode()
    reader, shown = read(whole, cuts=cuts, hides_usage=hides_usage)
    reference = Reference(whole)
    assert (reader.began, reader.failure is not None) == (reference.began, reference.failed)
    assert reader.finished is (reference.finished and not reference.failed)
    told = reference.deltas if reference.told is None else reference.told + reference.deltas - reference.told_at
    assert reader.generated_tokens == told
    assert shown == (reference.shown if hides_usage else whole)


def test_a_chat_of_plain_text_is_not_decoded_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead_router.protocols.answers.decoded", None)
    reader, _ = read("".join(engines_chunk(text, "", [], ["logprobs"], []) for text in ("a", "b", "c")) + DONE)
    assert (reader.events, reader.generated_tokens, reader.began, reader.finished) == (4, 3, True, True)


@pytest.mark.parametrize("together", [1, 2, 7, 100])
def test_most_events_are_not_decoded_however_many_come_together(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []

    def counting(data: bytes) -> Any:
        decoded.append(data)
        return orjson.loads(data)

    monkeypatch.setattr("fairlead_router.protocols.answers.decoded", counting)
    anthropic = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f"t{number}"}} for number in range(100)
    ]
    responses = [{"type": "response.output_text.delta", "delta": f"t{number}", "sequence_number": number} for number in range(100)]
    streams = {
        OPENAI: [chunk(f"t{number}") for number in range(100)],
        ANTHROPIC: [named(one) for one in anthropic],
        RESPONSES: [named(one) for one in responses],
    }
    for dialect, events in streams.items():
        decoded.clear()
        reader = StreamReader(dialect, hides_usage=dialect is OPENAI)
        for start in range(0, 100, together):
            piece = "".join(events[start : start + together]).encode()
            assert reader.feed(piece) == piece
        assert (reader.generated_tokens, reader.events, len(decoded)) == (100, 100, 1)


# ── answers that are not streamed ──


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"choices": [], "usage": USAGE}, Usage(7, 4, 9)),
        ({"usage": {"completion_tokens": 3}}, Usage(3)),
        ({"usage": {"completion_tokens": 3, "prompt_tokens_details": None}}, Usage(3)),
        ({"usage": None}, None),
        ({"usage": {"completion_tokens": "three"}}, None),
        ({"usage": {"completion_tokens": 2**63 - 1}}, None),
        ({"usage": {"completion_tokens": -1}}, None),
        ({"usage": {"completion_tokens": True}}, None),
        ({"usage": {"input_tokens": 5, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 2}}}, Usage(3, 2, 5)),
        (
            {"usage": {"input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1}},
            Usage(3, 2, 8),
        ),
        ({"usage": {"input_tokens": 5, "output_tokens": 3}}, Usage(3, None, 5)),
        ({}, None),
    ],
)
def test_usage_of_whole_answers_is_read_leniently(document: dict[str, Any], expected: Usage | None) -> None:
    said = read_whole(orjson.dumps({**document, "choices": [{"text": "x"}]}))
    assert (said.usage, said.failure) == (expected, None)


def test_an_answer_with_numbers_that_json_has_not_is_given_up_too() -> None:
    body = b'{"choices": [{"text": "x", "logprobs": [NaN], "finish_reason": "abort"}]}'
    assert read_whole(body).failure == Failure("it ended with finish_reason abort")


@pytest.mark.parametrize(
    ("dialect", "events", "failure", "output"),
    [
        (OPENAI, chunk("x") + chunk(None, "stop") + event({"choices": [], "usage": USAGE}) + DONE, None, 7),
        (OPENAI, chunk("x") + event({"error": ERROR}), Failure("KV load failed", 500), 1),
        (OPENAI, DONE, Failure("the stream has no content, and no reason for its end"), 0),
        (ANTHROPIC, named({"type": "content_block_delta", "delta": {"text": "x"}}) + named({"type": "message_stop"}), None, 1),
        (RESPONSES, named({"type": "response.output_text.delta", "delta": "x"}), Failure("the stream ended before its answer did"), 1),
    ],
)
def test_events_that_nobody_asked_for_are_judged_as_events(dialect: Dialect, events: str, failure: Failure | None, output: int) -> None:
    said = read_whole(events.encode(), kind=b"text/event-stream; charset=utf-8", dialect=dialect)
    assert said.usage is not None
    assert (said.failure, said.usage.output_tokens) == (failure, output)


def test_plain_text_is_no_answer_but_a_document_by_that_name_is() -> None:
    assert read_whole(b"Internal Server Error", kind=b"text/plain; charset=utf-8").failure == Failure("the answer is plain text")
    assert read_whole(b'{"score": 0.5}', kind=b"text/plain").failure is None
    assert read_whole(b'[{"score": 0.5}]', kind=b"text/plain").failure is None
    assert read_whole(b"Internal", kind=b"application/octet-stream").failure is None


def test_usage_of_coheres_protocol_is_what_it_bills() -> None:
    said = read_whole(b'{"embeddings": {"float": [[0.1]]}, "meta": {"billed_units": {"input_tokens": 4, "image_tokens": null}}}')
    assert (said.usage, said.failure) == (Usage(0, None, 4), None)
    assert read_whole(b'{"results": [], "meta": {"api_version": {}}}').usage is None
    assert read_whole(b'{"results": [1], "meta": {"billed_units": {"search_units": 1}}}').usage is None


@pytest.mark.parametrize(
    ("billed", "tokens"),
    [({"input_tokens": 4}, 4), ({"input_tokens": 0, "image_tokens": 900}, 900), ({"input_tokens": -1, "image_tokens": 7}, 7)],
)
def test_what_is_billed_is_the_same_however_long_the_answer_is(billed: dict[str, int], tokens: int) -> None:
    body = orjson.dumps({"id": "e", "embeddings": {"float": [[0.1] * 100]}, "texts": ["x"], "meta": {"billed_units": billed}})
    squeezed = Squeezed(0)
    squeezed.feed(body)
    assert read_whole(body).usage == usage_of(squeezed) == Usage(0, None, tokens)


def test_embeddings_are_not_decoded_to_see_that_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded_bodies: list[bytes] = []
    monkeypatch.setattr(answers, "decoded", decoded_bodies.append)
    assert read_whole(orjson.dumps({"embeddings": {"float": [[0.1] * 100]}, "meta": {}})).failure is None
    assert not decoded_bodies


def test_usage_is_read_beside_numbers_that_json_has_not() -> None:
    assert read_whole(b'{"data": [{"embedding": [NaN, -Infinity]}], "usage": {"prompt_tokens": 4}}').usage == Usage(0, None, 4)


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        ({"object": "error", "message": "boom", "code": 500}, Failure("boom", 500)),
        ({"error": ERROR}, Failure("KV load failed", 500)),
        ({"error": "boom"}, Failure("boom")),
        ({"error": ERROR, "choices": []}, Failure("KV load failed", 500)),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "boom"}}, Failure("boom", 429)),
        ({"id": "resp_1", "status": "failed", "error": {"code": "server_error", "message": "boom"}}, Failure("boom")),
        ({"choices": [{"message": {"content": ""}, "finish_reason": "error"}]}, Failure("it ended with finish_reason error")),
        ({"choices": [{"message": {"content": "x"}, "finish_reason": "abort"}]}, Failure("it ended with finish_reason abort")),
        ({"choices": [{"finish_reason": "stop"}, {"finish_reason": "abort"}]}, Failure("it ended with finish_reason abort")),
        ({"choices": [{"message": {"content": '"finish_reason": "abort"'}, "finish_reason": "stop"}]}, None),
        ({"choices": [{"text": "x", "finish_reason": "stop"}], "metadata": {"finish_reason": "abort"}}, None),
        ({"type": "message", "role": "assistant", "content": [{"text": "x"}]}, Failure("it ended without a stop_reason")),
        ({"type": "message", "role": "assistant", "content": [{"text": "x"}], "stop_reason": "end_turn"}, None),
        ({"id": "resp_1", **VOIDED}, Failure("it was cancelled")),
        ({"choices": [{"message": {"content": '"finish_reason": "error"'}, "finish_reason": "stop"}], "error": None}, None),
        ({"choices": [{"message": {"content": '{"error": "boom"}'}, "finish_reason": "length"}]}, None),
        ({"id": "resp_1", "status": "incomplete", "error": None}, None),
        ({"type": "message", "content": [{"type": "text", "text": "error"}]}, None),
        ([{"error": "no answer is a list"}], None),
        ({"detail": "Not Found"}, Failure("Not Found")),
        ({"detail": ["field required"]}, Failure('["field required"]')),
        ({"message": "no healthy upstream", "code": 503}, Failure("no healthy upstream", 503)),
        ({"status": "error", "message": "boom", "choices": []}, Failure("boom")),
        ({"message": "a pooling model's own field", "score": 0.5}, None),
        ({"id": "resp_1", "object": "response", "status": "queued", "output": [], "usage": None}, None),
        ({"type": "message", "content": [], "stop_reason": "max_tokens"}, None),
    ],
)
def test_a_body_that_is_an_error_is_a_failure_whatever_its_status(body: Any, failure: Failure | None) -> None:
    assert read_whole(orjson.dumps(body)).failure == failure


@pytest.mark.parametrize(
    "page", [b"<html><body>sign in</body></html>", b"\n<!DOCTYPE html>\n<title>x</title>", b"<?xml version='1.0'?><e/>"]
)
def test_a_page_is_no_answer(page: bytes) -> None:
    assert read_whole(page).failure == Failure("the answer is a page of markup")


NOTHING = Failure("the answer has no content, and no reason for its end")


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "usage": USAGE},
        {"choices": []},
        {"choices": None},
        {"choices": [], "usage": USAGE, "system_fingerprint": "fp"},
        {"choices": [{}]},
        {"choices": [None]},
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": None}]},
        {"choices": [{"index": 0, "text": "", "finish_reason": None, "logprobs": None}]},
        {"type": "message", "role": "assistant", "content": [], "stop_reason": None},
        {"type": "message", "content": [], "usage": {"input_tokens": 3, "output_tokens": 0}},
        {"type": "message"},
        {"id": "resp_1", "object": "response", "output": []},
        {"object": "list", "model": "m", "data": [], "usage": {"prompt_tokens": 4}},
    ],
)
def test_a_document_that_holds_nothing_and_says_nothing_of_its_end_is_no_answer(document: dict[str, Any]) -> None:
    assert read_whole(orjson.dumps(document)).failure == NOTHING
    assert read_whole(json.dumps(document, indent=2).encode()).failure == NOTHING


@pytest.mark.parametrize(
    "document",
    [
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": "length"}]},
        {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]},
        {"choices": [{"index": 0, "text": "the prompt, echoed", "finish_reason": None}]},
        {"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": [{"id": "c"}]}, "finish_reason": None}]},
        {"choices": [{"finish_reason": None, "text": ""}, {"finish_reason": "stop", "text": ""}, {"finish_reason": None, "text": ""}]},
        {"choices": [{"token_ids": [1, 2]}]},
        {"type": "message", "content": [], "stop_reason": "end_turn"},
        {"type": "message", "content": [], "usage": {"input_tokens": 3, "output_tokens": 200}},
        {"id": "resp_1", "status": "completed", "output": []},
        {"id": "resp_1", "status": "queued", "output": []},
        {"id": "resp_1", "status": "cancelled"},
        {"data": [{"embedding": "AAAA"}]},
        {"data": [{"embedding": [0.0]}], "detail": None},
        {"embeddings": {"float": [[0.1]]}},
        {"results": []},
        {"score": 0.0},
        {"text": "", "output_ids": [1], "meta_info": {}},
        {"data": {"image": "x"}},
        {"count": 0},
    ],
)
def test_a_document_that_holds_something_or_says_why_it_ended_is_an_answer(document: dict[str, Any]) -> None:
    assert read_whole(orjson.dumps(document)).failure is None


@pytest.mark.parametrize("body", [b"Internal Server Error", b"\x1f\x8b\x08compressed", b"not found", b"-"])
def test_bytes_that_pass_for_json_and_are_none_are_no_answer(body: bytes) -> None:
    assert read_whole(body, kind=b"application/json").failure is not None
    assert read_whole(body, kind=b"application/octet-stream").failure is None


@pytest.mark.parametrize("body", [b"0.5", b"true", b'"text"', b"[[0.1]]", b"NaN", "\ufeff1".encode()])
def test_json_of_any_kind_is_an_answer(body: bytes) -> None:
    assert read_whole(body, kind=b"application/json; charset=utf-8").failure is None


def long_answer(document: object, cuts: list[int]) -> LongAnswer:
    long = LongAnswer()
    for piece in pieces(json.dumps(document).encode(), cuts):
        long.feed(piece)
    return long


@given(st.sampled_from(["stop", "length", "abort", "error", None]), TEXT | st.just('"finish_reason": "abort"'), CUTS)
def test_an_answer_too_long_to_hold_is_judged_as_a_short_one(reason: str | None, text: str, cuts: list[int]) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": text or "x"}, "finish_reason": reason}
    long = long_answer({"id": "c", "choices": [choice], "usage": USAGE}, cuts)
    assert (long.failure is not None) == (reason in ("abort", "error"))
    assert long.usage == Usage(7, 4, 9)


@pytest.mark.parametrize(
    "document",
    [
        {"object": "error", "message": "boom"},
        {"error": ERROR},
        {"status": "failed", "error": ERROR, "output": [{"type": "message"}]},
        {"type": "message", "role": "assistant", "content": [{"text": "x"}], "stop_reason": None},
        {"status": "cancelled", "background": False, "output": [{"type": "message"}]},
    ],
)
@pytest.mark.parametrize("padding", [0, 20_000])
def test_a_long_answer_that_failed_is_a_failure_in_every_protocol(document: dict[str, Any], padding: int) -> None:
    assert long_answer({"id": "x" * padding, **document}, [10, 500]).failure is not None
    assert long_answer({"embeddings": [[0.5] * padding], "id": "e"}, [10]).failure is None or not padding


def test_an_empty_list_is_an_answer_to_nothing() -> None:
    assert read_whole(b'{"object": "list", "data": []}', has_input=False).failure is None
    assert read_whole(b"{}", has_input=False).failure == NOTHING


@pytest.mark.parametrize("has_input", [True, False])
def test_an_empty_list_is_judged_alike_where_no_memory_is_left_to_hold_it(has_input: bool) -> None:
    body = b'{"object": "list", "data": [], "usage": {"prompt_tokens": 0}}'
    long = LongAnswer(has_input=has_input)
    long.feed(body)
    assert long.failure == read_whole(body, has_input=has_input).failure


def test_a_reason_that_a_model_writes_is_none() -> None:
    document = {"choices": [{"message": {"content": None, "role": "assistant"}, "finish_reason": None}], "model": '"finish_reason": "stop"'}
    assert read_whole(orjson.dumps(document)).failure == NOTHING


WHOLE = orjson.dumps(
    {"choices": [{"index": 0, "message": {"content": "tok → \u2713", "x": None}, "finish_reason": "stop"}], "usage": USAGE}
)


@given(cut=st.integers(0, len(WHOLE) - 1))
def test_a_document_that_is_cut_anywhere_is_no_answer(cut: int) -> None:
    assert read_whole(WHOLE).failure is None
    assert read_whole(WHOLE[:cut]).failure is not None


@pytest.mark.parametrize("body", [b"", b" \r\n", b"null", b"[]\n", b'""'])
def test_an_empty_body_is_no_answer(body: bytes) -> None:
    assert read_whole(body).failure is not None


@pytest.mark.parametrize("body", [b"\x00\x01", b"{\xff\xfe\x80\x12", b"{\x00\x00\x00", b"true", b"0.5", b"[[0.1]]"])
def test_bytes_that_are_no_document_are_an_answer(body: bytes) -> None:
    assert read_whole(body).failure is None
