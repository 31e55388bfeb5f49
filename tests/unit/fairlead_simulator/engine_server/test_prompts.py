import pytest

from fairlead_simulator.engine_server.protocols.prompts import anthropic_prompt, chat_prompt, responses_prompt
from fairlead_simulator.engine_server.request_errors import RequestInvalid


def test_a_conversation_is_the_same_text_in_every_protocol() -> None:
    chat = [
        {"role": "system", "content": "Be brief. "},
        {"role": "user", "content": [{"type": "text", "text": "Grüße"}, {"type": "text", "text": "!"}]},
        {"role": "assistant", "content": None},
    ]
    expected = "Be brief. Grüße!".encode()
    assert chat_prompt(chat, "m") == expected
    assert anthropic_prompt([{"type": "text", "text": "Be brief. "}], [{"role": "user", "content": "Grüße!"}], "m") == expected
    assert (
        responses_prompt(
            [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": [{"type": "input_text", "text": "Grüße!"}]}], "m"
        )
        == expected
    )


def test_the_next_turn_begins_with_all_of_the_last() -> None:
    turn = [{"role": "user", "content": "one "}]
    answered = [
        *turn,
        {"role": "assistant", "content": [{"type": "text", "text": "two "}, {"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
    ]
    next_turn = [
        *answered,
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "three"}]}]},
    ]
    assert anthropic_prompt("s ", next_turn, "m") == b"s one two three"
    assert anthropic_prompt("s ", next_turn, "m").startswith(anthropic_prompt("s ", turn, "m"))


@pytest.mark.parametrize(
    ("messages", "param", "message"),
    [
        (None, "body.messages", "Field required"),
        ([], None, "at least one message"),
        (["hi"], "body.messages.0", "an object with a role"),
        ([{"content": "hi"}], "body.messages.0.role", "Field required"),
        ([{"role": "user", "content": 3}], "body.messages.0.content", "not 3"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], None, "m is not a multimodal model"),
        ([{"role": "user", "content": [{"type": "zzz"}]}], "body.messages.0.content.0.type", "not 'zzz'"),
    ],
)
def test_what_is_no_conversation_is_refused_naming_its_place(messages: object, param: str | None, message: str) -> None:
    with pytest.raises(RequestInvalid, match=message) as caught:
        chat_prompt(messages, "m")
    assert (caught.value.status, caught.value.param) == (400, param)
