"""Prompts out of each protocol's documents."""

from typing import Any

import pytest

from fairlead_router.protocols.paths import find
from fairlead_router.protocols.prompts import (
    Prompt,
    anthropic_prompt,
    batch_prompt,
    chat_prompt,
    completion_prompt,
    embedding_prompt,
    invocation_prompt,
    responses_prompt,
    texts_of,
)
from fairlead_router.protocols.refusals import BadRequest
from fairlead_router.protocols.rendered_chats import MEDIA, mark

MARK = {role: mark(role) for role in ("system", "user", "assistant", "tool")}


def test_one_conversation_gives_the_same_bytes_in_every_protocol() -> None:
    chat = {
        "messages": [
            {"role": "system", "content": "Be kind. "},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi"},
        ]
    }
    messages = {
        "system": [{"type": "text", "text": "Be kind. "}],
        "messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}],
    }
    responses = {
        "instructions": "Be kind. ",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
        ],
    }
    marked = MARK["system"] + b"Be kind. " + MARK["user"] + b"Hello" + MARK["assistant"] + b"Hi"
    assert chat_prompt(chat) == anthropic_prompt(messages) == responses_prompt(responses) == Prompt((marked,))
    assert responses_prompt({"input": "Hello"}).text == MARK["user"] + b"Hello"
    assert invocation_prompt(chat) == chat_prompt(chat)
    assert invocation_prompt({"prompt": "once"}).text == b"once"
    assert batch_prompt({"messages": [chat["messages"], chat["messages"]]}).text == marked + mark("next") + marked


def test_reranking_and_scoring_are_routed_by_the_query_and_then_the_documents() -> None:
    read = texts_of("query", "documents")
    assert read({"documents": ["a", {"text": "b"}], "query": "q"}).text == b"qab"
    assert read({}).text == b""
    picture = {"type": "image_url", "image_url": {"url": "http://a/b.png"}}
    assert read({"query": "q", "documents": {"content": [picture]}}).kinds == MEDIA


def test_embeddings_of_messages_are_chats_that_ask_for_no_answer() -> None:
    said = {"messages": [{"role": "user", "content": "x"}]}
    assert embedding_prompt(said) == embedding_prompt({"input": said["messages"]}) == texts_of("messages")(said)
    assert embedding_prompt(said) == embedding_prompt({**said, "add_generation_prompt": False}) == chat_prompt(said)
    assert embedding_prompt({**said, "add_generation_prompt": True}) != embedding_prompt(said)


def test_embedded_prompts_and_what_is_to_follow_the_answer_are_part_of_a_completion() -> None:
    read = completion_prompt
    prompts: list[dict[str, Any]] = [{"prompt": "a"}, {"prompt": "a", "suffix": "b"}, {"prompt": "ab"}]
    prompts += [{"prompt": given, "prompt_embeds": embeds} for given in ("a", None) for embeds in ("UEsDBA==", ["UEsDBA=="])]
    assert len({read(document).text for document in prompts}) == len(prompts)
    assert read({"prompt_embeds": "UEsDBA=="}).kinds == MEDIA


def test_nesting_without_end_is_not_followed() -> None:
    deep: object = "text"
    for _ in range(900):
        deep = [deep]
    assert responses_prompt({"input": [deep, "seen"]}).text == MARK["user"] + b"seen"
    assert texts_of("query")({"query": [deep, "seen"]}).text == b"seen"


@pytest.mark.parametrize(
    ("reader", "document"),
    [
        (anthropic_prompt, {"messages": ["x", {"content": 5}]}),
        (anthropic_prompt, {"system": 7, "messages": []}),
        (responses_prompt, {"input": 7}),
        (responses_prompt, {"input": []}),
        (batch_prompt, {"messages": []}),
    ],
)
def test_what_cannot_be_read_adds_nothing_to_a_prompt(reader, document: dict[str, object]) -> None:  # type: ignore[no-untyped-def]
    assert reader(document).text == b""


@pytest.mark.parametrize(
    ("reader", "document", "param"),
    [
        (anthropic_prompt, {"system": "x"}, "messages"),
        (responses_prompt, {"instructions": "x"}, "input"),
        (batch_prompt, {"messages": {}}, "messages"),
        (batch_prompt, {"messages": [[], "x"]}, "messages[1]"),
    ],
)
def test_a_document_without_a_prompt_is_a_400_that_names_the_field(reader, document: dict[str, object], param: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadRequest) as caught:
        reader(document)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_images_of_coheres_embeddings_are_media_and_not_their_letters() -> None:
    endpoint = find(b"/v2/embed")
    assert endpoint is not None
    image = f"data:image/png;base64,{'A' * 1_000_000}"
    assert endpoint.prompt({"texts": ["one", "two"]}).text == b"onetwo"
    shown = endpoint.prompt({"images": [image]})
    assert (shown.kinds, len(shown.text) < 10_000) == (MEDIA, True)
    assert shown == endpoint.prompt({"inputs": [{"content": [{"type": "image_url", "image_url": {"url": image}}]}]})
    assert endpoint.prompt({"images": 7}).text == b""
    assert endpoint.prompt({"images": [7, None]}).kinds == MEDIA, "the engine refuses them"
