"""The official `anthropic` client, at an engine and at the gateway."""

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest

from fairlead_testing.running.client_doors import MODEL, Door, Doors
from fairlead_testing.waiting import PATIENCE_SECONDS

QUESTION = "Tell me about prefix caches. " * 40


@pytest.fixture
async def client(door: Door) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=door.url, api_key="any", timeout=PATIENCE_SECONDS, max_retries=0) as made:
        yield made


async def test_a_message_is_answered_and_its_next_turn_finds_the_last_in_the_cache(client: anthropic.AsyncAnthropic) -> None:
    first = await client.messages.create(
        model=MODEL, system="Be brief. ", messages=[{"role": "user", "content": QUESTION}], max_tokens=64, metadata={"user_id": "ann"}
    )
    block = first.content[0]
    assert block.type == "text"
    assert (first.stop_reason, first.usage.output_tokens, len(block.text.split())) == ("max_tokens", 64, 64)
    second = await client.messages.create(
        model=MODEL,
        system="Be brief. ",
        messages=[
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": "Go on."},
        ],
        max_tokens=4,
        metadata={"user_id": "ann"},
    )
    usage = second.usage
    assert usage.cache_read_input_tokens == (293 + 64 - 1) // 16 * 16
    counted = await client.messages.count_tokens(
        model=MODEL,
        system="Be brief. ",
        messages=[
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": block.text},
            {"role": "user", "content": "Go on."},
        ],
    )
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)


async def test_a_message_stream_builds_the_message(client: anthropic.AsyncAnthropic) -> None:
    async with client.messages.stream(model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=30) as stream:
        kinds = [event.type async for event in stream]
        message = await stream.get_final_message()
    own = [kind for kind in kinds if kind != "text"]
    assert own[:2] == ["message_start", "content_block_start"]
    assert set(own[2:-3]) == {"content_block_delta"}
    assert own[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    block = message.content[0]
    assert block.type == "text"
    assert (len(block.text.split()), message.stop_reason, message.usage.output_tokens) == (30, "max_tokens", 30)


async def test_errors_are_those_the_client_knows(client: anthropic.AsyncAnthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        await client.messages.create(model="nobody", messages=[{"role": "user", "content": "Hello"}], max_tokens=2)
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["type"] == "error"
    with pytest.raises(anthropic.BadRequestError, match="maximum context length is 8192 tokens"):
        await client.messages.create(model=MODEL, messages=[{"role": "user", "content": "x" * 40_000}], max_tokens=2)
    with pytest.raises(anthropic.BadRequestError):
        await client.messages.create(model=MODEL, messages=[], max_tokens=2)


async def test_the_gateways_own_refusals_are_errors_the_client_knows_too(doors: Doors) -> None:
    door = await doors.gateway(engines=1, gateway_keys=("right",))
    hello: Any = [{"role": "user", "content": "Hello"}]
    async with anthropic.AsyncAnthropic(base_url=door.url, api_key="wrong", timeout=PATIENCE_SECONDS, max_retries=0) as stranger:
        with pytest.raises(anthropic.AuthenticationError) as caught:
            await stranger.messages.create(model=MODEL, messages=hello, max_tokens=2)
        assert isinstance(caught.value.body, dict)
        assert caught.value.body["error"]["type"] == "authentication_error"
        friend = stranger.with_options(api_key="right")
        assert (await friend.messages.create(model=MODEL, messages=hello, max_tokens=2)).stop_reason == "max_tokens"
        with pytest.raises(anthropic.APIStatusError) as failed:
            await friend.messages.create(model=MODEL, messages=hello, max_tokens=2, extra_headers={"x-sim-fail": "error-500"})
        assert failed.value.status_code == 502


async def test_a_message_stream_whose_engine_dies_is_an_error_and_not_an_end(doors: Doors) -> None:
    door = await doors.gateway(engines=1)
    async with anthropic.AsyncAnthropic(base_url=door.url, api_key="any", timeout=PATIENCE_SECONDS, max_retries=0) as client:
        with pytest.raises(anthropic.APIError, match="ended early"):
            async with client.messages.stream(
                model=MODEL,
                messages=[{"role": "user", "content": "Hello"}],
                max_tokens=400,
                extra_headers={"x-sim-fail": "die-mid-stream"},
            ) as stream:
                await stream.get_final_message()
