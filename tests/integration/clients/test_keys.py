"""Clients and the gateway's API keys: each client shows its key in its own header."""

import asyncio
import os
import sys

import anthropic
import openai
import pytest

from fairlead_testing.running.client_doors import MODEL, Doors

KEY = "a-key-of-this-gateway"


async def test_the_clients_own_way_of_showing_a_key_is_understood(doors: Doors) -> None:
    door = await doors.gateway(gateway_keys=(KEY,))
    async with openai.AsyncOpenAI(base_url=f"{door.url}/v1", api_key=KEY, max_retries=0) as client:
        assert MODEL in [model.id async for model in client.models.list()]
        answer = await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=2)
        assert answer.usage is not None
    async with anthropic.AsyncAnthropic(base_url=door.url, api_key=KEY, max_retries=0) as client:
        message = await client.messages.create(model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=2)
        assert message.usage.output_tokens == 2
    async with anthropic.AsyncAnthropic(base_url=door.url, auth_token=KEY, max_retries=0) as client:
        assert (await client.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": "Hello"}])).input_tokens > 0


async def test_a_wrong_key_is_the_error_each_client_knows(doors: Doors) -> None:
    door = await doors.gateway(gateway_keys=(KEY,))
    async with openai.AsyncOpenAI(base_url=f"{door.url}/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError, match="not known to this gateway"):
            await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hello"}])
    async with anthropic.AsyncAnthropic(base_url=door.url, api_key="wrong", max_retries=0) as client:
        with pytest.raises(anthropic.AuthenticationError, match="not known to this gateway"):
            await client.messages.create(model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=2)


@pytest.mark.parametrize(("key", "code"), [(KEY, 0), ("", 1)])
async def test_a_replay_shows_the_key_when_it_asks_for_models_too(doors: Doors, key: str, code: int) -> None:
    door = await doors.gateway(gateway_keys=(KEY,))
    command = ("-m", "fairlead_simulator.replay", "--generate", "conversation", "--requests", "3", "--speed", "50", "--median-input", "100")
    environment = {**os.environ, "FAIRLEAD_GATEWAY_KEY": key}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, "--url", door.url, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode == code, errors.decode()
    assert (b"3 sent = 3 served" in output) is (code == 0)
