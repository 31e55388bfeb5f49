"""Answers survive their engine: simulated engines in processes of their own are killed or drained.

The client's stream is compared in each protocol.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import httpx
import pytest

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.instances import InstanceState
from fairlead_router.relaying.heirs import call_again
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.running.engine import RunningEngine, StartEngine, engine_starter
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

PROMPT = "Tell me how a harbour works, from the pilot to the crane. "
TOKENS = 60
CHATTED = [{"role": "user", "content": PROMPT}]
FORMS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": CHATTED, "max_tokens": TOKENS, "stream_options": {"include_usage": True}},
    "/v1/completions": {"prompt": PROMPT, "max_tokens": TOKENS, "stream_options": {"include_usage": True}},
    "/v1/messages": {"messages": CHATTED, "max_tokens": TOKENS},
    "/v1/responses": {"input": PROMPT, "max_output_tokens": TOKENS},
}


@dataclass
class Site:
    """A router before two engines."""

    world: World
    running: RunningRouter
    engines: list[RunningEngine]

    def engine(self, answer: httpx.Response) -> RunningEngine:
        return self.engines[int(answer.headers["x-fairlead-instance"].removeprefix("i"))]

    async def whole(self, path: str, document: dict[str, Any]) -> bytes:
        """Return the uninterrupted stream, read from a remaining engine directly."""
        left = next(engine for engine in self.engines if engine.process.poll() is None)
        async with httpx.AsyncClient(base_url=left.url, timeout=PATIENCE_SECONDS, trust_env=False) as client:
            return (await client.post(path, json={"model": "m", "stream": True, **document})).content

    async def counted(self, name: str) -> float:
        lines = (await self.running.admin.get("/metrics")).text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


@pytest.fixture
def start_engine() -> Iterator[StartEngine]:
    with engine_starter() as start:
        yield start


@pytest.fixture
async def site(world: World, start_engine: StartEngine) -> Site:
    flags = ("--decode-step-ms", "20", "--stream-interval-ms", "20")
    engines = [start_engine(*flags) for _ in range(2)]
    addresses = [f"127.0.0.1:{engine.port}" for engine in engines]
    world.api.state.set_table(routing_table(addresses, model="m", policy="least-request", continue_answers="Enabled"))
    running = await world.start_router()
    await until(lambda: running.router.informing.synced)
    return Site(world, running, engines)


async def read(answer: httpx.Response, events: int) -> tuple[bytes, AsyncIterator[bytes]]:
    """Return the stream up to this many events, and an iterator over the rest of it."""
    pieces, got = answer.aiter_raw(), b""
    async for piece in pieces:
        got += piece
        if got.count(b"\n\n") >= events:
            break
    return got, pieces


def documents(stream: bytes) -> list[dict[str, Any]]:
    lines = [line[6:] for line in stream.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def said(document: dict[str, Any]) -> str:
    for choice in document.get("choices") or ():
        return str((choice.get("delta") or {}).get("content") or choice.get("text") or "")
    delta = document.get("delta")
    return str(delta.get("text", "")) if isinstance(delta, dict) else str(delta or "")


def counts(stream: bytes) -> tuple[int, int]:
    """Return the tokens of prompt and answer by the last counts of the stream."""
    for document in reversed(documents(stream)):
        usage = document.get("usage") or (document.get("response") or {}).get("usage")
        if usage:
            prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
            cached = usage.get("cache_read_input_tokens", 0) + usage.get("cache_creation_input_tokens", 0)
            return prompt + cached, usage.get("completion_tokens", usage.get("output_tokens"))
    raise AssertionError("no counts")


def same(got: bytes, whole: bytes) -> None:
    """Assert that a client got the same answer, once."""
    assert "".join(map(said, documents(got))) == "".join(map(said, documents(whole)))
    assert got.count(b"[DONE]") == whole.count(b"[DONE]")
    assert b"error" not in got
    assert counts(got) == counts(whole)
    ids = {document["id"] for document in documents(got) if "choices" in document}
    assert len(ids) <= 1
    for once in ("message_start", "message_stop", "response.created", "response.completed", '"role":"assistant","content":""'):
        assert got.count(f'"type":"{once}"'.encode()) <= 1
    numbers = [document["sequence_number"] for document in documents(got) if "sequence_number" in document]
    assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize("path", FORMS)
async def test_an_answer_whose_engine_is_killed_goes_on_elsewhere_in_the_same_stream(site: Site, path: str) -> None:
    document = {"model": "m", "stream": True, **FORMS[path]}
    async with site.running.client.stream("POST", path, json=document) as answer:
        begun, pieces = await read(answer, 9)
        site.engine(answer).process.kill()
        got = begun + b"".join([piece async for piece in pieces])
    same(got, await site.whole(path, FORMS[path]))
    assert await site.counted("fairlead_router_continued_answers_total") == 1
    assert await site.counted('fairlead_router_requests_total{outcome="served"') == 1
    assert await site.counted('fairlead_router_requests_total{outcome="failed"') == 0
    counted = await site.counted("fairlead_router_tokens_total")
    assert counted >= TOKENS
    assert not site.running.scheduler.discrepancies()
    reports = site.world.api.state.reports
    await until(lambda: any(report.decisions for report in reports.values()))
    [decision] = [decision for report in reports.values() for decision in report.decisions]
    [one] = decision.continuations
    assert one.why == "lost"
    assert one.carried_tokens > 0
    assert one.computed_tokens >= one.carried_tokens
    assert one.gap_seconds is not None


async def test_token_ids_are_carried_where_the_client_asked_for_them(site: Site) -> None:
    more = {**FORMS["/v1/completions"], "return_token_ids": True}
    async with site.running.client.stream("POST", "/v1/completions", json={"model": "m", "stream": True, **more}) as answer:
        begun, pieces = await read(answer, 9)
        site.engine(answer).process.kill()
        got = begun + b"".join([piece async for piece in pieces])
    whole = await site.whole("/v1/completions", more)
    same(got, whole)
    of = [
        [token for one in documents(stream) for choice in one["choices"] for token in choice.get("token_ids") or ()]
        for stream in (got, whole)
    ]
    assert of[0] == of[1]


async def test_an_unstreamed_answer_is_asked_for_again(site: Site) -> None:
    asked = asyncio.create_task(site.running.client.post("/v1/completions", json={"model": "m", "prompt": PROMPT, "max_tokens": TOKENS}))
    await until(lambda: any(row.in_flight for row in site.running.scheduler.in_flight()))
    [row] = [row for row in site.running.scheduler.in_flight() if row.in_flight]
    site.engines[int(row.instance.removeprefix("i"))].process.kill()
    answer = await asked
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == TOKENS


async def test_a_pool_may_want_none_to_go_on(site: Site) -> None:
    table = site.world.api.state.tables[site.running.pool.key]
    site.world.api.state.set_table(replace(table, version=2, routing=replace(table.routing, continue_answers="Disabled")))
    await until(lambda: site.running.pool.table.version == 2)
    path = "/v1/chat/completions"
    async with site.running.client.stream("POST", path, json={"model": "m", "stream": True, **FORMS[path]}) as answer:
        begun, pieces = await read(answer, 9)
        site.engine(answer).process.kill()
        got = begun + b"".join([piece async for piece in pieces])
    assert b"rejected-upstream-failed" in got
    assert await site.counted('fairlead_router_uncontinued_answers_total{obstacle="off"') == 1


async def test_a_drain_hands_a_long_answer_over(site: Site) -> None:
    more = {**FORMS["/v1/chat/completions"], "max_tokens": 400}
    path = "/v1/chat/completions"
    async with site.running.client.stream("POST", path, json={"model": "m", "stream": True, **more}) as answer:
        begun, pieces = await read(answer, 9)
        leaving = answer.headers["x-fairlead-instance"]
        table = site.world.api.state.tables[site.running.pool.key]
        entries = tuple(replace(one, state=InstanceState.DRAINING) if one.id == leaving else one for one in table.instances)
        quick = replace(table.routing, hand_over_after_seconds=0.0)
        site.world.api.state.set_table(replace(table, version=2, instances=entries, routing=quick))
        rest = asyncio.create_task(_all(pieces))
        await until(lambda: all(row.instance != leaving or not row.in_flight for row in site.running.scheduler.in_flight()))
        assert not rest.done(), "the instance is empty while the answer goes on"
        got = begun + await rest
    same(got, await site.whole(path, more))
    assert await site.counted('fairlead_router_continued_answers_total{pool="default/chat",why="drained"') == 1
    assert await site.counted("fairlead_router_upstream_errors_total") == 0


async def test_a_session_whose_answer_went_on_elsewhere_has_its_prompt_kept_as_it_was_asked_for(site: Site) -> None:
    table = site.world.api.state.tables[site.running.pool.key]
    site.world.api.state.set_table(replace(table, version=2, routing=replace(table.routing, hand_over_budget=1.0)))
    await until(lambda: site.running.pool.table.version == 2)
    path, asked = "/v1/chat/completions", [{"role": "user", "content": PROMPT * 50}]
    document = {"model": "m", "stream": True, "messages": asked, "max_tokens": TOKENS}
    async with site.running.client.stream("POST", path, json=document) as answer:
        _, pieces = await read(answer, 9)
        site.engine(answer).process.kill()
        await _all(pieces)
    (kept,) = site.running.router.heirs._prompts.of(site.running.pool.key)
    assert kept.instance != answer.headers["x-fairlead-instance"], "the next turn begins where the answer ended"
    assert json.loads(kept.body)["messages"] == asked
    again = call_again(site.running.router.calls, kept, 0.0)
    assert again.head.startswith(b"POST /v1/chat/completions ")
    assert b"content-length: %d\r\n" % len(again.body) in again.head


async def test_a_key_pays_for_its_prompt_once_and_for_every_token_of_an_answer_that_went_on(site: Site) -> None:
    secret = "flk_the-secret-of-a-team-0123456789"
    key = GatewayKeyFacts(id="team", digest=sha256(secret.encode()).hexdigest(), tokens_per_minute=10**6)
    site.world.api.state.set_gateway_keys(key)
    await until(lambda: bool(site.running.router.keys._by_digest))
    path = "/v1/chat/completions"
    document, shown = {"model": "m", "stream": True, **FORMS[path]}, {"authorization": f"Bearer {secret}"}
    async with site.running.client.stream("POST", path, json=document, headers=shown) as answer:
        begun, pieces = await read(answer, 9)
        site.engine(answer).process.kill()
        got = begun + b"".join([piece async for piece in pieces])
    assert b"error" not in got
    await until(lambda: site.running.busy() == 0)
    await site.world.stop_router(site.running)
    uses = site.world.api.state.stored("key_use")
    assert sum(one.requests for one in uses) == 1
    assert (sum(one.prompt_tokens for one in uses), sum(one.output_tokens for one in uses)) == counts(got)
    assert counts(got)[1] == TOKENS


async def test_an_answer_finds_the_one_instance_left_when_others_were_lost_with_its_own(site: Site, start_engine: StartEngine) -> None:
    world, running = site.world, site.running
    site.engines += [start_engine("--decode-step-ms", "20", "--stream-interval-ms", "20") for _ in range(4)]
    addresses = [f"127.0.0.1:{engine.port}" for engine in site.engines]
    world.api.state.set_table(routing_table(addresses, version=2, model="m", policy="least-request", continue_answers="Enabled"))
    await until(lambda: running.pool.table.version == 2)
    path = "/v1/chat/completions"
    async with running.client.stream("POST", path, json={"model": "m", "stream": True, **FORMS[path]}) as answer:
        begun, pieces = await read(answer, 9)
        own = site.engine(answer)
        left = next(engine for engine in site.engines if engine is not own)
        for engine in site.engines:
            if engine is not left:
                engine.process.kill()
        got = begun + b"".join([piece async for piece in pieces])
    same(got, await site.whole(path, FORMS[path]))


async def test_a_drain_leaves_an_answer_that_no_other_instance_can_end(site: Site) -> None:
    path = "/v1/chat/completions"
    async with site.running.client.stream("POST", path, json={"model": "m", "stream": True, **FORMS[path]}) as answer:
        begun, pieces = await read(answer, 9)
        leaving = answer.headers["x-fairlead-instance"]
        other = next(engine for engine in site.engines if engine is not site.engine(answer))
        other.process.kill()
        while (await site.running.client.post("/v1/completions", json={"model": "m", "prompt": "x", "max_tokens": 1})).headers[
            "x-fairlead-instance"
        ] != leaving:
            pass  # until the router has seen that the other is lost
        table = site.world.api.state.tables[site.running.pool.key]
        entries = tuple(replace(one, state=InstanceState.DRAINING) if one.id == leaving else one for one in table.instances)
        site.world.api.state.set_table(
            replace(table, version=2, instances=entries, routing=replace(table.routing, hand_over_after_seconds=0.0))
        )
        got = begun + await _all(pieces)
    same(got, await site.whole(path, FORMS[path]))
    assert await site.counted("fairlead_router_continued_answers_total") == 0


async def _all(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])
