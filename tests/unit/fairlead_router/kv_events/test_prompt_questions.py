"""Which of an engine's answers about a request's tokens are used, by the other statements of the answer."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.engines.upstream_connections import UpstreamFailure
from fairlead_router.kv_events.prompt_questions import NOT_OFFERED_SECONDS, Asked, Disputed, PromptAnswer, PromptQuestions
from fairlead_router.kv_events.prompt_texts import CHAT, MESSAGES, RENDERINGS, Rendering, questions

COUNT, RENDER = "/v1/messages/count_tokens", "/v1/messages/render"
INLINE = {
    "system": "Be brief.",
    "messages": [{"role": "user", "content": "Hi"}, {"role": "system", "content": "Hurry."}, {"role": "assistant", "content": "Yes?"}],
}
PLAIN = {"messages": [{"role": "user", "content": "Hi"}]}

Template = Callable[[Mapping[str, Any]], str]


def in_place(chat: Mapping[str, Any]) -> str:
    """Return the text of messages by a template that takes every message where it stands."""
    return "".join(f"<{message['role']}>{message['content']}" for message in chat["messages"])


def system_first(chat: Mapping[str, Any]) -> str:
    """Return the text of messages by a template that refuses a system message anywhere but at the beginning."""
    if any(message["role"] == "system" for message in chat["messages"][1:]):
        raise UpstreamFailure("status", "answered 400", 400)
    return in_place(chat)


class Engine(UpstreamPool):
    """Tokens are letters. `merges`: as vLLM converts messages for its template; `offers`: paths besides /tokenize."""

    def __init__(self, template: Template, *, merges: bool = False, offers: tuple[str, ...] = (COUNT,), extra: str = "") -> None:
        super().__init__(lambda: 0.0, connect_seconds=1.0)
        self.template = template
        self.rendering = Rendering(merge_system=merges)
        self.offers = offers
        self.extra = extra
        self.asked: list[str] = []

    async def fetch(
        self, address: str, path: str, *, seconds: float, limit: int = 0, headers: bytes = b"", body: bytes | None = None
    ) -> bytes:
        self.asked.append(path)
        document = json.loads(body or b"")
        if path == "/tokenize":
            text = self.template(document)
            return json.dumps({"tokens": [*text.encode()], "token_strs": [*text]}).encode()
        if path not in self.offers:
            raise UpstreamFailure("status", "answered 403", 403)
        (own,) = [each for each in questions(MESSAGES, document, None, self.rendering) if each.rendering == self.rendering]
        text = self.template(own.fields) + self.extra
        return json.dumps({"input_tokens": len(text)} if path == COUNT else {"token_ids": [*text.encode()]}).encode()


async def answer(
    engine: Engine,
    document: Mapping[str, Any] = INLINE,
    *,
    usual: Rendering | None = None,
    path: str = MESSAGES,
    asking: PromptQuestions | None = None,
) -> PromptAnswer:
    asked = Asked(address="a:1", engine_type="vllm", model="m", path=path, document=document)
    possible = questions(path, document, None, usual or RENDERINGS[0])
    return await (asking or PromptQuestions(engine, lambda: 0.0)).answer(asked, possible, first_is_usual=usual is not None)


@pytest.mark.parametrize(("template", "merges"), [(in_place, False), (system_first, True)])
@pytest.mark.parametrize("offers", [(COUNT,), (RENDER,), (COUNT, RENDER)])
async def test_the_rendering_is_the_one_that_the_engine_confirms(template: Template, merges: bool, offers: tuple[str, ...]) -> None:
    engine = Engine(template, merges=merges, offers=offers)
    told = await answer(engine)
    assert told.question.rendering.merge_system is merges
    assert bytes(told.tokens).decode() == engine.template(told.question.fields)


async def test_a_rendering_that_was_seen_is_asked_for_alone() -> None:
    engine = Engine(system_first, merges=True)
    await answer(engine, usual=Rendering(merge_system=True))
    assert engine.asked == [RENDER, COUNT, "/tokenize"]


async def test_an_engine_that_changed_its_template_is_believed_again_by_its_new_one() -> None:
    told = await answer(Engine(in_place), usual=Rendering(merge_system=True))
    assert not told.question.rendering.merge_system


@pytest.mark.parametrize("document", [INLINE, PLAIN])
async def test_tokens_that_the_engine_counts_otherwise_are_not_taken(document: Mapping[str, Any]) -> None:
    with pytest.raises(Disputed):
        await answer(Engine(in_place, extra="!"), document)


async def test_what_the_engine_renders_itself_is_taken_though_nobody_asked_for_it() -> None:
    told = await answer(Engine(in_place, offers=(RENDER,), extra="!"), PLAIN)
    assert bytes(told.tokens) == b"<user>Hi!" and not told.strings


async def test_without_a_word_of_the_engine_only_what_can_be_rendered_in_one_way_is_taken() -> None:
    assert bytes((await answer(Engine(in_place, offers=()), PLAIN)).tokens) == b"<user>Hi"
    with pytest.raises(Disputed):
        await answer(Engine(in_place, offers=()), INLINE)


async def test_renderings_of_the_same_number_of_tokens_are_not_told_apart_by_their_number() -> None:
    with pytest.raises(Disputed):
        await answer(Engine(lambda chat: str(chat["messages"][0]["role"])[:1] + str(len(chat["messages"])), merges=True))


async def test_a_request_that_every_rendering_refuses_is_the_requests_failure() -> None:
    def refusing(chat: Mapping[str, Any]) -> str:
        raise UpstreamFailure("status", "answered 400", 400)

    with pytest.raises(UpstreamFailure):
        await answer(Engine(refusing, offers=()), INLINE)


async def test_paths_that_an_engine_does_not_offer_are_asked_for_again_after_a_while() -> None:
    now = [0.0]
    engine = Engine(in_place, offers=())
    asking = PromptQuestions(engine, lambda: now[0])
    for at in (0.0, 1.0, NOT_OFFERED_SECONDS + 1.0):
        now[0] = at
        await answer(engine, PLAIN, asking=asking)
    assert engine.asked == [RENDER, COUNT, "/tokenize", "/tokenize", RENDER, COUNT, "/tokenize"]


async def test_a_chat_is_rendered_and_not_counted() -> None:
    engine = Engine(in_place, offers=())
    assert bytes((await answer(engine, PLAIN, path=CHAT)).tokens) == b"<user>Hi"
    assert engine.asked == ["/v1/chat/completions/render", "/tokenize"]


async def test_a_field_that_no_prompt_is_made_of_may_nest_as_deep_as_json_may() -> None:
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    engine = Engine(in_place, offers=(COUNT, RENDER))
    found = await answer(engine, {**PLAIN, "output_format": deep})
    assert bytes(found.tokens) == b"<user>Hi"
    assert RENDER not in engine.asked
