"""Test requests: what is sent, what is returned of each answer, and which requests no router gets."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from fairlead.errors import InvalidInput
from fairlead_api.infra.errors import Conflict, Unavailable
from fairlead_api.trials.sending import LONGEST_BODY, MOST_TOKENS, Trials
from fairlead_client.resources.trials import Trial

TRACE = "0af7651916cd43dd8448eb211c80319c"


def trials(answer: Callable[[httpx.Request], httpx.Response], url: str | None = "http://router:8000") -> Trials:
    clock = iter([1.0, 1.25])
    return Trials(url, lambda: TRACE, httpx.MockTransport(answer), lambda: next(clock))


async def test_the_request_names_its_pool_asks_for_its_decision_and_has_a_trace() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        headers = {"x-fairlead-decision": "d1", "x-fairlead-instance": "chat-a", "set-cookie": "s=1"}
        return httpx.Response(200, headers=headers, json={"choices": [{"message": {"content": "hello"}}]})

    trial = Trial(prompt="hi", max_tokens=8, session="s 1", key="flk_secret")
    found = await trials(answer).send("default/chat", "m", trial)
    (request,) = seen
    assert str(request.url) == "http://router:8000/v1/chat/completions"
    assert json.loads(request.content) == {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}
    sent = {
        name: request.headers[name] for name in ("x-fairlead-pool", "x-fairlead-explain", "x-session-id", "authorization", "traceparent")
    }
    assert sent == {
        "x-fairlead-pool": "default/chat",
        "x-fairlead-explain": "1",
        "x-session-id": "s 1",
        "authorization": "Bearer flk_secret",
        "traceparent": f"00-{TRACE}-{TRACE[:16]}-01",
    }
    assert (found.status, found.seconds, found.text, found.decision, found.instance, found.trace) == (
        200,
        0.25,
        "hello",
        "d1",
        "chat-a",
        TRACE,
    )
    assert "set-cookie" not in dict(found.headers)


@pytest.mark.parametrize(
    "content", [b"", b"no json", b"[]", b'{"choices": []}', b'{"choices": [{"message": {"content": 3}}]}', b"\xff" * 10]
)
async def test_any_answer_is_shown_as_it_is(content: bytes) -> None:
    found = await trials(lambda _request: httpx.Response(429, headers={"retry-after": "2"}, content=content)).send(
        "p/q", "m", Trial(prompt="hi")
    )
    assert (found.status, found.text, found.decision) == (429, None, None)
    assert found.body == content.decode(errors="replace")
    assert ("retry-after", "2") in found.headers


async def test_a_redirect_is_shown_and_not_followed_and_a_long_body_is_cut() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(302, headers={"location": "http://elsewhere/"}, content=b"x" * (LONGEST_BODY + 5))

    found = await trials(answer).send("p/q", "m", Trial(prompt="hi"))
    assert (found.status, len(found.body), len(asked)) == (302, LONGEST_BODY, 1)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"prompt": "  "}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": MOST_TOKENS + 1}, "max_tokens"),
        ({"session": "a\nb"}, "session"),
        ({"key": "a\r\nx: y"}, "key"),
        ({"key": "ü"}, "key"),
    ],
)
async def test_what_cannot_be_sent_is_refused_by_its_name_and_a_key_is_not_repeated(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await trials(lambda _request: httpx.Response(200)).send("p/q", "m", Trial(**{"prompt": "hi", **wrong}))
    assert caught.value.field == field
    assert "x: y" not in str(caught.value)


async def test_without_an_address_and_without_a_router_it_says_so() -> None:
    def refused(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(Conflict, match="FAIRLEAD_GATEWAY_URL"):
        await trials(refused, None).send("p/q", "m", Trial(prompt="hi"))
    with pytest.raises(Unavailable, match="the router at http://router:8000 does not answer"):
        await trials(refused).send("p/q", "m", Trial(prompt="hi"))
