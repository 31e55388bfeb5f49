"""Streamed answers of real vLLM engines that are killed without warning: the client gets each token of a whole answer
once.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from fairlead_testing.running.vllm_engine import MODEL, VllmEngine
from fairlead_testing.worlds.real_engines import COMPLETIONS, SECONDS, Live

CHAT = "/v1/chat/completions"
TEXT = "What does a router do with an answer whose engine is gone?"
TOKENS = 160
GIVEN = 20
"""Events after which the engine is killed."""
FORMS: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": TEXT}]},
    COMPLETIONS: {"prompt": TEXT},
}


def documents(stream: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix(b"data: ") for line in stream.splitlines() if line]
    assert lines[-1] == b"[DONE]", stream[-400:]
    return [orjson.loads(line) for line in lines[:-1]]


def choices(stream: bytes) -> Iterator[dict[str, Any]]:
    return (choice for document in documents(stream) for choice in document["choices"])


def text(stream: bytes) -> str:
    return "".join((choice["delta"].get("content") if "delta" in choice else choice["text"]) or "" for choice in choices(stream))


def tokens(stream: bytes) -> list[int]:
    return [token for choice in choices(stream) for token in choice.get("token_ids") or ()]


async def uninterrupted(engine: VllmEngine, path: str, document: dict[str, Any]) -> bytes:
    async with httpx.AsyncClient(base_url=f"http://{engine.address}", timeout=SECONDS, trust_env=False) as client:
        return (await client.post(path, json=document)).content


async def interrupted(live: Live, path: str, document: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return the client's answer, whose engine was killed after the first events, and the other engine's answer.

    Both answer the same request.
    """
    async with live.running.client.stream("POST", path, json=document, timeout=SECONDS) as answer:
        assert answer.status_code == 200, await answer.aread()
        leaving = answer.headers["x-fairlead-instance"]
        pieces, got = answer.aiter_raw(), b""
        async for piece in pieces:
            got += piece
            if got.count(b"\n\n") >= GIVEN:
                break
        live.engines[leaving].kill()
        try:
            got += b"".join([piece async for piece in pieces])
            [survivor] = [engine for name, engine in live.engines.items() if name != leaving]
            return got, await uninterrupted(survivor, path, document)
        finally:
            live.engines[leaving].start()
            await asyncio.to_thread(live.engines[leaving].wait_ready)


@pytest.mark.parametrize("path", FORMS)
async def test_an_answer_goes_on_with_the_tokens_that_it_would_have_had(live: Live, path: str) -> None:
    document = {
        "model": MODEL, "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0, "stream": True, "return_token_ids": True,
        "stream_options": {"include_usage": True}, **FORMS[path],
    }  # fmt: skip
    got, whole = await interrupted(live, path, document)
    counters = live.running.pool.counters
    assert dict(counters.carried) == {"lost": 1}, "the engine was killed in the middle of its answer"
    assert (counters.served, counters.failed) == (1, 0)
    assert len(tokens(whole)) == TOKENS
    assert tokens(got) == tokens(whole)
    assert text(got) == text(whole)
    usages = [documents(stream)[-1]["usage"] for stream in (got, whole)]
    assert [usage["completion_tokens"] for usage in usages] == [TOKENS, TOKENS]
    assert usages[0]["prompt_tokens"] == usages[1]["prompt_tokens"]
    assert len({one["id"] for one in documents(got)}) == 1


def events(stream: bytes) -> list[dict[str, Any]]:
    return [orjson.loads(line.removeprefix(b"data: ")) for line in stream.splitlines() if line.startswith(b"data: {")]


def message_counts(usage: dict[str, int]) -> tuple[int, int]:
    """Return all tokens of the prompt, and the tokens of the answer.

    The split of the prompt between cached and written depends on the engine: it counts whole blocks, and the last block
    may hold the beginning of the answer.
    """
    of_prompt = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(usage[field] for field in of_prompt), usage["output_tokens"]


async def test_a_message_goes_on_with_the_text_that_it_would_have_had(live: Live) -> None:
    document = {
        "model": MODEL, "max_tokens": TOKENS, "temperature": 0, "stream": True, "messages": [{"role": "user", "content": TEXT}]
    }  # fmt: skip
    got, whole = (events(stream) for stream in await interrupted(live, "/v1/messages", document))
    assert dict(live.running.pool.counters.carried) == {"lost": 1}
    said, full = ("".join(one["delta"].get("text", "") for one in each if one["type"] == "content_block_delta") for each in (got, whole))
    assert said == full
    assert [one["type"] for one in got if "delta" not in one["type"]] == [one["type"] for one in whole if "delta" not in one["type"]]
    assert got[-2]["delta"] == whole[-2]["delta"]
    assert message_counts(got[-2]["usage"]) == message_counts(whole[-2]["usage"])


async def test_a_response_goes_on_with_the_text_that_it_would_have_had(live: Live) -> None:
    document = {"model": MODEL, "max_output_tokens": TOKENS, "temperature": 0, "stream": True, "input": TEXT}
    got, whole = (events(stream) for stream in await interrupted(live, "/v1/responses", document))
    assert dict(live.running.pool.counters.carried) == {"lost": 1}
    said, full = ("".join(one["delta"] for one in each if one["type"] == "response.output_text.delta") for each in (got, whole))
    assert said == full
    assert [one["sequence_number"] for one in got] == list(range(len(got)))
    kinds = ([one["type"] for one in each if not one["type"].endswith(".delta")] for each in (got, whole))
    assert next(kinds) == next(kinds)
    ends = [each[-1]["response"] for each in (got, whole)]
    assert ends[0]["output"][0]["content"] == ends[1]["output"][0]["content"]
    assert [end["status"] for end in ends] == [ends[1]["status"]] * 2
    for count in ("input_tokens", "output_tokens", "total_tokens"):
        assert ends[0]["usage"][count] == ends[1]["usage"][count], count
    assert len({one["response"]["id"] for one in got if "response" in one}) == 1
