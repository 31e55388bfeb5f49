import orjson
import pytest

from fairlead_simulator.engine_server.openai_requests import Endpoint, RequestInvalid, parse_generation

USER = {"role": "user", "content": "hi"}


def chat(**fields: object) -> bytes:
    return orjson.dumps({"model": "m", "messages": [USER], **fields})


def test_the_prompt_is_all_message_texts_in_order_with_nothing_between() -> None:
    messages = [
        {"role": "system", "content": "Be brief. "},
        {"role": "user", "content": [{"type": "text", "text": "Grüße"}, {"type": "text", "text": "!"}]},
        {"role": "assistant", "content": None},
    ]
    parsed = parse_generation(Endpoint.CHAT, chat(messages=messages), "m")
    assert parsed.prompt == "Be brief. Grüße!".encode()


def test_length_and_streaming_are_taken_from_the_body() -> None:
    body = chat(max_tokens=7, stream=True, stream_options={"include_usage": True})
    parsed = parse_generation(Endpoint.CHAT, body, "m")
    assert (parsed.max_tokens, parsed.limited, parsed.stream, parsed.include_usage) == (7, True, True, True)
    parsed = parse_generation(Endpoint.CHAT, chat(max_tokens=7, max_completion_tokens=9), "m")
    assert parsed.max_tokens == 9
    parsed = parse_generation(Endpoint.COMPLETIONS, b'{"model": "m", "prompt": ["once"]}', "m")
    assert (parsed.prompt, parsed.max_tokens, parsed.limited, parsed.stream) == (b"once", 128, False, False)


@pytest.mark.parametrize(
    ("body", "status", "param", "message"),
    [
        (b"{", 400, None, "not valid JSON"),
        (b"[]", 400, None, "must be a JSON object"),
        (chat(model="other"), 404, "model", "The model `other` does not exist."),
        (chat(n=2), 400, "n", "Only n=1"),
        (chat(max_tokens=0), 400, "max_tokens", "at least 1, got 0"),
        (chat(max_tokens=True), 400, "max_tokens", "at least 1"),
        (chat(max_completion_tokens="9"), 400, "max_completion_tokens", "at least 1"),
        (chat(stream="yes"), 400, "stream", "must be true or false"),
        (chat(stream_options=[]), 400, "stream_options", "must be an object"),
        (chat(messages=[]), 400, "messages", "non-empty list"),
        (chat(messages=["hi"]), 400, "messages", "messages[0] must be an object with a role"),
        (chat(messages=[USER, {"role": "user", "content": 3}]), 400, "messages", "messages[1].content must be a string"),
        (chat(messages=[{"role": "user", "content": [{"type": "image_url"}]}]), 400, "messages", "type text only"),
        (b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}', 400, None, "not valid JSON"),
    ],
)
def test_a_bad_body_is_refused_naming_its_field(body: bytes, status: int, param: str | None, message: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        parse_generation(Endpoint.CHAT, body, "m")
    assert (caught.value.status, caught.value.param) == (status, param)
    assert message in str(caught.value)


def test_a_completion_needs_one_prompt_of_text() -> None:
    for prompt in (None, 3, ["a", "b"], [1, 2]):
        with pytest.raises(RequestInvalid, match="prompt must be a string"):
            parse_generation(Endpoint.COMPLETIONS, orjson.dumps({"model": "m", "prompt": prompt}), "m")
