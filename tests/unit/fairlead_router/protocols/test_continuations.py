"""An answer that breaks off anywhere is continued without a gap.

A model of an engine answers in each protocol, its stream is cut at any byte, and the client's bytes of both parts are
compared with the uninterrupted answer.
"""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.protocols.answers import StreamReader
from fairlead_router.protocols.answers_so_far import MOST_TEXT, SETTLED_BYTES, AnswerSoFar, answer_so_far
from fairlead_router.protocols.continuations import LONGEST_STOPS, Uncarried, Unlike, rest, unlike, why_not
from fairlead_router.protocols.continued_streams import RestReader, continued
from fairlead_router.protocols.dialects import Dialect
from fairlead_testing.examples import examples

TOKENS = ["Die ", "Straße", " is", "t 🚗", "\n\n", "voll", ' "heute"', "\\", "é", "👩‍👩‍👧", " ...", "ende\t", "{}", "data: x"]
PROMPT = "Wie ist der Verkehr?"
DOCUMENTS: dict[Dialect, dict[str, Any]] = {
    Dialect.OPENAI: {
        "model": "m",
        "messages": [{"role": "user", "content": PROMPT}],
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    Dialect.ANTHROPIC: {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": PROMPT}], "stream": True},
    Dialect.RESPONSES: {"model": "m", "input": PROMPT, "stream": True},
}
COMPLETION: dict[str, Any] = {"model": "m", "prompt": PROMPT, "max_tokens": 99, "stream": True, "stream_options": {"include_usage": True}}
FORMS = (*DOCUMENTS.items(), (Dialect.OPENAI, COMPLETION))


class Engine:
    """Answers every prompt with the same tokens, and continues an answer with which its prompt ends, as vLLM does."""

    def __init__(self, tokens: list[str], name: str) -> None:
        self.tokens = tokens
        self.name = name
        self.given = 0

    def stream(self, dialect: Dialect, path: bytes | None, document: dict[str, Any]) -> bytes:
        """Return the whole stream."""
        begun = _begun(dialect if path is None else Dialect.OPENAI, document)
        assert "".join(self.tokens).startswith(begun)
        left = _after(self.tokens, begun)
        limit = document.get("max_completion_tokens") or document.get("max_tokens") or document.get("max_output_tokens")
        reason = "length" if limit is not None and limit <= len(left) else "stop"
        left = left[:limit]
        self.given = len(self.tokens) - len(_after(self.tokens, begun))
        prompt = 5 + self.given
        if dialect is Dialect.OPENAI or path is not None:
            return self._chunks(document, left, reason, prompt)
        return self._message(left, reason, prompt) if dialect is Dialect.ANTHROPIC else self._response(document, left, reason, prompt)

    def _chunks(self, document: dict[str, Any], left: list[str], reason: str, prompt: int) -> bytes:
        chat = "messages" in document
        head = {"id": self.name, "object": "chunk", "created": len(self.name), "model": "m"}
        chunks: list[dict[str, Any]] = []
        if chat:
            chunks.append({"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})
        for place, token in enumerate(left):
            ends = reason if place == len(left) - 1 else None
            chunks.append({"index": 0, **({"delta": {"content": token}} if chat else {"text": token}), "finish_reason": ends})
        if not left:
            chunks.append({"index": 0, **({"delta": {}} if chat else {"text": ""}), "finish_reason": reason})
        usage = {"prompt_tokens": prompt, "completion_tokens": len(left), "total_tokens": prompt + len(left)}
        documents = [{**head, "choices": [chunk]} for chunk in chunks] + [{**head, "choices": [], "usage": usage}]
        return (
            b"".join(b"data: " + json.dumps(one, ensure_ascii=len(one) % 2 == 0).encode() + b"\n\n" for one in documents)
            + b"data: [DONE]\n\n"
        )

    def _message(self, left: list[str], reason: str, prompt: int) -> bytes:
        usage = {"input_tokens": prompt, "output_tokens": len(left)}
        message = {"id": self.name, "type": "message", "role": "assistant", "content": [], "model": "m", "usage": {"input_tokens": prompt}}
        stop = {"stop_reason": "max_tokens" if reason == "length" else "end_turn", "stop_sequence": None}
        return _events(
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": token}} for token in left),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": usage},
            {"type": "message_stop"},
        )

    def _response(self, document: dict[str, Any], left: list[str], reason: str, prompt: int) -> bytes:
        text, place = "".join(left), {"item_id": f"msg-{self.name}", "output_index": 0, "content_index": 0}
        response = {"id": f"resp-{self.name}", "created_at": len(self.name), "model": "m", "output": [], "status": "in_progress"}
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"type": "message", "id": place["item_id"], "role": "assistant", "content": [part], "status": "completed"}
        usage = {"input_tokens": prompt, "output_tokens": len(left), "total_tokens": prompt + len(left)}
        status = "incomplete" if reason == "length" else "completed"
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": response},
            {"type": "response.in_progress", "response": response},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": [], "status": "in_progress"}},
            {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
            *({"type": "response.output_text.delta", **place, "delta": token} for token in left),
            {"type": "response.output_text.done", **place, "text": text},
            {"type": "response.content_part.done", **place, "part": part},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {**response, "output": [item], "status": status, "usage": usage}},
        ]
        for number, event in enumerate(events):
            event["sequence_number"] = number
        return _events(*events)


def _begun(dialect: Dialect, document: dict[str, Any]) -> str:
    """Return the text of the answer that the request asks to continue."""
    if dialect is Dialect.RESPONSES:
        last = document["input"][-1] if isinstance(document["input"], list) else {}
        return str(last["content"][0]["text"]) if last.get("status") == "in_progress" else ""
    if dialect is Dialect.ANTHROPIC:
        return ""
    if "messages" not in document:
        return str(document["prompt"]).removeprefix(PROMPT)
    assert document.get("add_generation_prompt") is not document.get("continue_final_message", False)
    return str(document["messages"][-1]["content"]) if document.get("continue_final_message") else ""


def _after(tokens: list[str], begun: str) -> list[str]:
    rest_of, size = list(tokens), len(begun)
    while size > 0:
        size -= len(rest_of.pop(0))
    assert size == 0, "an event was cut"
    return rest_of


def _events(*documents: dict[str, Any]) -> bytes:
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in documents)


def _fed(reader: StreamReader, data: bytes, sizes: list[int]) -> list[bytes]:
    """Return the client's bytes of `data` that arrives in pieces of these sizes, repeated to its end."""
    shown, turn = [], 0
    while data:
        size = sizes[turn % len(sizes)]
        shown.append(reader.feed(data[:size]))
        data, turn = data[size:], turn + 1
    return [piece for piece in shown if piece]


def _documents(data: bytes) -> list[dict[str, Any]]:
    found = []
    for raw in data.decode().split("\n\n"):
        lines = [line.removeprefix("data: ") for line in raw.split("\n") if line.startswith("data: ")]
        if lines and lines[0] != "[DONE]":
            found.append(json.loads(lines[0]))
    return found


def _said(document: dict[str, Any]) -> str:
    for choice in document.get("choices") or ():
        return str((choice.get("delta") or {}).get("content") or choice.get("text") or "")
    delta = document.get("delta")
    return str(delta.get("text", "")) if isinstance(delta, dict) else str(delta or "")


def _rest_after(dialect: Dialect, document: dict[str, Any], shown: list[bytes]) -> tuple[AnswerSoFar, Any]:
    sent = answer_so_far(dialect, [])
    sent.pieces += shown
    sent.settle()
    assert why_not(document, dialect, sent, "vllm") is None
    given_tokens = len(TOKENS) - len(_after(TOKENS, sent.text)) if sent.has_content else 0
    made = rest(json.dumps(document).encode(), document, dialect, sent, given_tokens=given_tokens)
    assert made is not None
    return sent, made


@given(st.data())
@examples(300)
def test_an_answer_cut_anywhere_goes_on_as_if_it_had_not_been(data: st.DataObject) -> None:
    dialect, document = data.draw(st.sampled_from(FORMS))
    document = dict(document)
    if data.draw(st.booleans()) and dialect is not Dialect.RESPONSES:
        document["max_tokens"] = data.draw(st.integers(1, len(TOKENS) + 2))
    sizes = data.draw(st.lists(st.integers(1, 400), min_size=1, max_size=6))
    whole = Engine(TOKENS, "first").stream(dialect, None, document)
    cut = data.draw(st.integers(0, len(whole)))
    reader = StreamReader(dialect, whole=True)
    shown = _fed(reader, whole[:cut], sizes)
    assert whole.startswith(b"".join(shown)), "nothing but whole events"
    sent = answer_so_far(dialect, [])
    sent.pieces += shown
    sent.settle()
    if not shown or reader.finished or why_not(document, dialect, sent, "vllm") is Uncarried.PROTOCOL:
        return  # it is tried elsewhere as a whole; it is complete; or only a response's last event is missing
    for engine in ("second", "third"):
        sent = answer_so_far(dialect, [])
        sent.pieces += shown
        sent.settle()
        if engine == "third" and why_not(document, dialect, sent, "vllm") is Uncarried.PROTOCOL:
            return
        sent, made = _rest_after(dialect, document, shown)
        on = RestReader(made, sent, hides_usage=False)
        stream = Engine(TOKENS, engine).stream(dialect, made.path, json.loads(made.body))
        end = len(stream) if engine == "third" or data.draw(st.booleans()) else data.draw(st.integers(0, len(stream)))
        shown += _fed(on, stream[:end], sizes)
        if on.finished:
            shown.append(on.end())
            break
    else:
        return
    _check(dialect, whole, b"".join(shown), document, made.given_tokens)


def _check(dialect: Dialect, whole: bytes, got: bytes, document: dict[str, Any], given_tokens: int) -> None:
    expected, documents = _documents(whole), _documents(got)
    assert "".join(map(_said, documents)) == "".join(map(_said, expected))
    assert got.count(b"[DONE]") == whole.count(b"[DONE]")
    if dialect is not Dialect.OPENAI:
        assert [one["type"] for one in documents if not _said(one)] == [one["type"] for one in expected if not _said(one)]
    if dialect is Dialect.OPENAI:
        assert {one["id"] for one in documents} == {"first"}
        assert {one["created"] for one in documents} == {len("first")}
        roles = [choice["delta"]["role"] for one in documents for choice in one["choices"] if "role" in choice.get("delta", {})]
        assert roles == (["assistant"] if "messages" in document else [])
        ends = [choice["finish_reason"] for one in documents for choice in one["choices"] if choice["finish_reason"]]
        assert ends == [choice["finish_reason"] for one in expected for choice in one["choices"] if choice["finish_reason"]]
        assert documents[-1].get("usage", expected[-1]["usage"]) == expected[-1]["usage"], "or its engine was lost before it"
    elif dialect is Dialect.ANTHROPIC:
        assert documents[-2:] == expected[-2:]
        assert {one["index"] for one in documents if "index" in one} == {0}
    else:
        assert [one["sequence_number"] for one in documents] == list(range(len(documents)))
        [item] = [one["item"]["id"] for one in documents if one["type"] == "response.output_item.added"]
        ends = json.loads(json.dumps(expected[-4:]).replace("msg-first", item))  # an engine that begins the item names it
        assert [{**one, "sequence_number": 0} for one in documents[-4:]] == [{**one, "sequence_number": 0} for one in ends]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"n": 2}, Uncarried.SEVERAL_CHOICES),
        ({"logprobs": True}, Uncarried.LOG_PROBABILITIES),
        ({"response_format": {"type": "json_object"}}, Uncarried.STRUCTURED_OUTPUT),
        ({"structured_outputs": {"regex": "a*"}}, Uncarried.STRUCTURED_OUTPUT),
        ({"tool_choice": "required"}, Uncarried.STRUCTURED_OUTPUT),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, Uncarried.STRUCTURED_OUTPUT),
        ({"use_beam_search": True}, Uncarried.BEAM_SEARCH),
        ({"echo": True}, Uncarried.ECHO),
        ({"truncate_prompt_tokens": 5}, Uncarried.CUT_PROMPT),
        ({"kv_transfer_params": {"a": 1}}, Uncarried.ENGINE_STATE),
        ({"stop": ["Straßenbahn"]}, Uncarried.STOP_STRING),
        ({"stop": "Straßenbahn", "tools": []}, Uncarried.STOP_STRING),
        ({"stop": "Straßenbahn", "stop_sequences": None}, Uncarried.STOP_STRING),
        ({"stop": "x" * LONGEST_STOPS}, None),
        ({"stop": "x" * (LONGEST_STOPS + 1)}, Uncarried.STOP_STRING),
        ({"stop": ["x"] * (LONGEST_STOPS + 1)}, Uncarried.STOP_STRING),
        ({"response_format": {"type": "text"}, "tool_choice": "auto", "n": 1, "logprobs": False, "stop": ["Bahn"]}, None),
    ],
)
def test_what_an_engine_alone_knows_is_refused(fields: dict[str, Any], why: Uncarried | None) -> None:
    document = DOCUMENTS[Dialect.OPENAI] | fields
    sent = answer_so_far(Dialect.OPENAI, [])
    sent.pieces.append(b'data: {"id":"a","choices":[{"index":0,"delta":{"content":"Die Stra\xc3\x9fe"}}]}\n\n')
    sent.settle()
    assert why_not(document, Dialect.OPENAI, sent, "vllm") is why


def _chunk(**delta: Any) -> bytes:
    return b"data: " + json.dumps({"id": "a", "choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


@pytest.mark.parametrize(
    ("chunks", "why"),
    [
        (
            [_chunk(content="so"), _chunk(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}])],
            Uncarried.TOOL_CALL,
        ),
        ([_chunk(reasoning="hm")], Uncarried.REASONING),
        ([_chunk(reasoning="hm"), _chunk(content="so")], None),
        ([_chunk(content="\ud83d")], Uncarried.UNREADABLE),
        ([_chunk(content="\ud83d"), _chunk(content="\ude97")], None),
    ],
)
def test_how_far_an_answer_has_come_decides_whether_it_can_go_on(chunks: list[bytes], why: Uncarried | None) -> None:
    sent = answer_so_far(Dialect.OPENAI, [])
    sent.pieces += chunks
    sent.settle()
    assert why_not(DOCUMENTS[Dialect.OPENAI], Dialect.OPENAI, sent, "vllm") is why


def test_a_half_written_call_of_a_tool_is_seen_in_each_protocol() -> None:
    message = answer_so_far(Dialect.ANTHROPIC, [])
    message.pieces.append(
        _events({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "f"}})
    )
    response = answer_so_far(Dialect.RESPONSES, [])
    response.pieces.append(
        _events(
            {"type": "response.output_item.added", "output_index": 0, "item": {"type": "function_call", "id": "f"}},
            {"type": "response.function_call_arguments.delta", "delta": "{"},
        )
    )
    for dialect, sent in ((Dialect.ANTHROPIC, message), (Dialect.RESPONSES, response)):
        sent.settle()
        assert why_not(DOCUMENTS[dialect], dialect, sent, "vllm") is Uncarried.TOOL_CALL


def test_an_answer_begun_without_content_is_asked_for_again_whatever_it_is() -> None:
    sent = answer_so_far(Dialect.OPENAI, [])
    sent.pieces.append(_chunk(role="assistant", content=""))
    sent.settle()
    document = DOCUMENTS[Dialect.OPENAI] | {"response_format": {"type": "json_object"}, "n": 3}
    assert why_not(document, Dialect.OPENAI, sent, "vllm") is None
    assert rest(b"{}", document, Dialect.OPENAI, sent, ids=[1]) == rest(b"{}", document, Dialect.OPENAI, sent)


def test_an_engine_that_thinks_again_does_not_go_on() -> None:
    sent, made = _rest_after(Dialect.OPENAI, DOCUMENTS[Dialect.OPENAI], [_chunk(content="Die ")])
    reader = RestReader(made, sent, hides_usage=False)
    assert reader.feed(_chunk(reasoning="The user asks")) == b""
    assert reader.failure is not None
    assert reader.shortfall is reader.failure


def test_token_ids_go_along_where_they_are_known() -> None:
    sent = answer_so_far(Dialect.OPENAI, [])
    first = {"id": "a", "prompt_token_ids": [7, 8], "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    said = {"id": "a", "choices": [{"index": 0, "delta": {"content": "Die "}, "token_ids": [3]}]}
    half = {"id": "a", "choices": [{"index": 0, "delta": {"content": ""}, "token_ids": [4]}]}
    sent.pieces += [b"data: " + json.dumps(one).encode() + b"\n\n" for one in (first, said, half)]
    sent.settle()
    assert (sent.prompt_ids, sent.ids) == ([7, 8], [3, 4])
    made = rest(b'{"messages":[]}', {"messages": []}, Dialect.OPENAI, sent, given_tokens=2, ids=[7, 8, 3, 4])
    assert made is not None
    asked = json.loads(made.body)
    assert asked["kv_transfer_params"] == {"prompt_token_ids": [7, 8, 3, 4]}
    assert asked["messages"] == [{"role": "assistant", "content": "Die "}], "for engines that do not know the ids"
    made = rest(b'{"prompt":"x"}', {"prompt": "x"}, Dialect.OPENAI, sent, given_tokens=2, ids=[7, 8, 3, 4])
    assert made is not None
    assert json.loads(made.body)["prompt"] == [7, 8, 3, 4]


def _with_ids(*ids: int, text: str = "") -> bytes:
    return b"data: " + json.dumps({"id": "a", "choices": [{"index": 0, "delta": {"content": text}, "token_ids": ids}]}).encode() + b"\n\n"


def test_tokens_without_text_are_not_made_again() -> None:
    document = DOCUMENTS[Dialect.OPENAI]
    sent = answer_so_far(Dialect.OPENAI, [_with_ids(3), _with_ids(4)])
    sent.settle()
    assert why_not(document, Dialect.OPENAI, sent, "vllm") is None
    made = rest(json.dumps(document).encode(), document, Dialect.OPENAI, sent, given_tokens=2, ids=[7, 8, *sent.ids])
    assert made is not None
    assert json.loads(made.body)["kv_transfer_params"] == {"prompt_token_ids": [7, 8, 3, 4]}
    assert rest(json.dumps(document).encode(), document, Dialect.OPENAI, sent, given_tokens=2) is None, "from where, is not known"
    for stop in ("Bahn", ["Bahn"]):
        assert why_not({**document, "stop": stop}, Dialect.OPENAI, sent, "vllm") is Uncarried.STOP_STRING


@pytest.mark.parametrize("before", ["", "Die "])
def test_a_tool_call_whose_beginning_an_engine_holds_back_is_not_continued(before: str) -> None:
    document = {**DOCUMENTS[Dialect.OPENAI], "tools": [{"type": "function", "function": {"name": "depart"}}]}
    sent = answer_so_far(Dialect.OPENAI, [*([_with_ids(3, text=before)] if before else []), _with_ids(151657), _with_ids(5)])
    sent.settle()
    assert why_not(document, Dialect.OPENAI, sent, "vllm") is Uncarried.TOOL_CALL, "the rest would come as text"
    assert why_not(DOCUMENTS[Dialect.OPENAI], Dialect.OPENAI, sent, "vllm") is None, "half a character is no tool call"
    sent.pieces.append(_with_ids(6, text="Bahn"))
    sent.settle()
    assert why_not(document, Dialect.OPENAI, sent, "vllm") is None, "it was none"


def test_ids_of_a_part_of_the_text_alone_say_nothing_of_where_it_goes_on() -> None:
    sent = answer_so_far(Dialect.OPENAI, [_with_ids(3, text="Die "), _chunk(content="Straße")])
    sent.settle()
    assert why_not(DOCUMENTS[Dialect.OPENAI], Dialect.OPENAI, sent, "vllm") is Uncarried.STOP_STRING


def test_a_token_that_is_made_again_keeps_its_ids() -> None:
    sent = answer_so_far(Dialect.OPENAI, [_with_ids(3, text="ha"), _with_ids(5, text="ha"), *[_with_ids(5, text="ha")] * 3])
    sent.settle()
    assert (sent.text, sent.ids, sent.deltas) == ("ha" * 5, [3, 5, 5, 5, 5], 5)
    assert why_not(DOCUMENTS[Dialect.OPENAI], Dialect.OPENAI, sent, "vllm") is None


def test_ids_that_no_token_has_are_none() -> None:
    for ids in ([2**32], [-1], [2**70], ["7"], [True], 7):
        sent = answer_so_far(Dialect.OPENAI, [])
        chunk = {"id": "a", "choices": [{"index": 0, "delta": {"content": "Die "}, "token_ids": ids}]}
        sent.pieces.append(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        sent.settle()
        assert (sent.text, sent.ids) == ("Die ", [])


def _long(dialect: Dialect) -> list[bytes]:
    """Return events of an answer with more text than is kept."""
    text = "y" * 65_536
    if dialect is Dialect.OPENAI:
        events = [_chunk(content=text)]
    elif dialect is Dialect.ANTHROPIC:
        events = [_events({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})]
    else:
        item = {"id": "m", "type": "message", "content": [{"type": "output_text", "text": text}]}
        added = {"type": "response.output_item.added", "output_index": 0, "item": {"id": "m", "type": "message"}}
        events = [_events(added), _events({"type": "response.output_item.done", "output_index": 0, "item": item})]
    return events * (MOST_TEXT // len(text) + 1)


@pytest.mark.parametrize("dialect", list(DOCUMENTS))
def test_an_answer_of_which_no_more_is_kept_does_not_begin_again(dialect: Dialect) -> None:
    sent = answer_so_far(dialect, [])
    for event in _long(dialect):
        sent.pieces.append(event)
        sent.settle_if_large()
    sent.settle()
    assert sent.is_too_long
    assert why_not(DOCUMENTS[dialect], dialect, sent, "vllm") is Uncarried.TOO_LONG


def test_events_with_much_beside_their_text_are_not_kept() -> None:
    sent = answer_so_far(Dialect.OPENAI, [])
    large = {"id": "a", "choices": [{"index": 0, "delta": {"content": "x"}, "logprobs": {"content": ["y" * 1000]}}]}
    for _ in range(1000):
        sent.pieces.append(b"data: " + json.dumps(large).encode() + b"\n\n")
        sent.settle_if_large()
        assert sum(map(len, sent.pieces)) <= SETTLED_BYTES
    sent.settle()
    assert sent.text == "x" * 1000


def test_few_events_are_not_read_before_they_are_needed() -> None:
    sent = answer_so_far(Dialect.OPENAI, [_chunk(content="x")] * 100)
    sent.settle_if_large()
    assert len(sent.pieces) == 100


def test_thoughts_beside_a_text_are_kept_however_alike_their_events_are() -> None:
    delta = {"content": "a", "reasoning_content": "because"}
    event = b"data: %b\n\n" % json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}).encode()
    sent = answer_so_far(Dialect.OPENAI, [event] * 3)
    sent.settle()
    assert (sent.text, sent.thoughts) == ("aaa", "because" * 3)


def test_a_message_that_the_client_wants_continued_becomes_longer() -> None:
    document = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "So "}], "continue_final_message": True}
    sent = answer_so_far(Dialect.OPENAI, [])
    sent.pieces.append(_chunk(content="weit"))
    sent.settle()
    made = rest(json.dumps(document).encode(), document, Dialect.OPENAI, sent)
    assert made is not None
    assert json.loads(made.body)["messages"][-1] == {"role": "assistant", "content": "So weit"}


def test_a_long_answer_is_kept_as_its_text() -> None:
    sent = answer_so_far(Dialect.OPENAI, [])
    for _ in range(100):
        sent.pieces += [_chunk(content="Straße"), _chunk(content='"\\\n'), _chunk(content="abc"), _chunk(content="def")] * 10
        sent.settle()
        assert sent.pieces == []
    assert sent.text == 'Straße"\\\nabcdef' * 1000
    assert sent.deltas == 4000


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, None),
        ({"seed": 1}, Unlike.SEED),
        ({"seed": 1, "temperature": 0}, None),
        ({"temperature": 0, "presence_penalty": 0.5}, Unlike.PENALTIES),
    ],
)
def test_what_may_become_another_answer_is_said(fields: dict[str, Any], found: Unlike | None) -> None:
    assert unlike(fields) is found


@pytest.mark.parametrize(
    ("dialect", "usage", "whole"),
    [
        (
            Dialect.OPENAI,
            {"prompt_tokens": 45, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0, "created_cache_tokens": 32}},
            {"prompt_tokens": 25, "completion_tokens": 25, "prompt_tokens_details": {"cached_tokens": 0, "created_cache_tokens": 25}},
        ),
        (
            Dialect.ANTHROPIC,
            {"prompt_tokens": 45, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 16, "created_cache_tokens": 16}},
            {"input_tokens": 0, "output_tokens": 25, "cache_read_input_tokens": 16, "cache_creation_input_tokens": 9},
        ),
        (
            Dialect.RESPONSES,
            {"input_tokens": 45, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 32, "cache_write_tokens": 13}},
            {"input_tokens": 25, "output_tokens": 25, "input_tokens_details": {"cached_tokens": 25, "cache_write_tokens": 0}},
        ),
    ],
)
def test_what_an_engine_had_cached_and_has_written_are_parts_of_the_prompt(
    dialect: Dialect, usage: dict[str, Any], whole: dict[str, Any]
) -> None:
    document = DOCUMENTS[dialect]
    sent, made = _rest_after(dialect, document, [_begun_events(dialect)])
    writes = continued(replace(made, given_tokens=20), sent)
    wrapped = (
        {"type": "response.completed", "response": {"usage": usage}} if dialect is Dialect.RESPONSES else {"usage": usage, "choices": []}
    )
    written = writes.write(b"response.completed", wrapped) + (writes.done() if dialect is Dialect.ANTHROPIC else b"")
    counted = [one.get("response", one)["usage"] for one in _documents(written) if "usage" in one.get("response", one)]
    assert [{field: each[field] for field in whole} for each in counted] == [whole]


def _begun_events(dialect: Dialect) -> bytes:
    """Return the first events of an answer, with some text."""
    stream = Engine(TOKENS, "first").stream(dialect, None, DOCUMENTS[dialect])
    return b"".join(piece + b"\n\n" for piece in stream.split(b"\n\n")[:7])
