import orjson
import pytest

from fairlead_simulator.engine_server.openai_answers import StreamFormat, Usage, answer_document, error_document
from fairlead_simulator.engine_server.openai_requests import Endpoint

USAGE = Usage(prompt_tokens=10, completion_tokens=3, cached_tokens=8)


def events(data: bytes) -> list[dict[str, object]]:
    return [orjson.loads(event.removeprefix(b"data: ")) for event in data.strip().split(b"\n\n")]


@pytest.mark.parametrize("include_usage", [True, False])
def test_a_chat_stream_is_a_valid_sequence_of_chunks(include_usage: bool) -> None:
    form = StreamFormat(Endpoint.CHAT, "id-1", 'm"odel', 7, include_usage)
    chunks = events(form.opening() + form.content(b"abc def ") + form.finish("length") + form.usage(USAGE, {}))
    assert all(
        (chunk["id"], chunk["object"], chunk["created"], chunk["model"]) == ("id-1", "chat.completion.chunk", 7, 'm"odel')
        for chunk in chunks
    )
    assert [chunk["choices"] for chunk in chunks] == [
        [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}],
        [{"index": 0, "delta": {"content": "abc def "}, "logprobs": None, "finish_reason": None}],
        [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}],
        [],
    ]
    assert all(("usage" in chunk) == include_usage for chunk in chunks[:-1])
    assert chunks[-1]["usage"] == {
        "prompt_tokens": 10,
        "total_tokens": 13,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 8},
    }


def test_a_completion_stream_has_text_and_no_role() -> None:
    form = StreamFormat(Endpoint.COMPLETIONS, "id-1", "m", 7, False)
    assert form.opening() == b""
    chunks = events(form.content(b"abc ") + form.finish("stop"))
    assert [chunk["choices"] for chunk in chunks] == [
        [{"index": 0, "text": "abc ", "logprobs": None, "finish_reason": None}],
        [{"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}],
    ]


def test_whole_answers_and_errors_have_the_shape_clients_expect() -> None:
    chat = orjson.loads(answer_document(Endpoint.CHAT, "i", "m", 7, "abc ", "stop", USAGE, {}))
    assert chat["choices"][0]["message"] == {"role": "assistant", "content": "abc "}
    text = orjson.loads(answer_document(Endpoint.COMPLETIONS, "i", "m", 7, "abc ", "stop", USAGE, {"timing": {}}))
    assert (text["object"], text["choices"][0]["text"], text["timing"]) == ("text_completion", "abc ", {})
    assert orjson.loads(error_document("no", "BadRequestError", 400, "n")) == {
        "error": {"message": "no", "type": "BadRequestError", "param": "n", "code": 400}
    }
