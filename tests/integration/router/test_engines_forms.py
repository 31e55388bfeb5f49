"""Bodies in every form that vLLM's request models know pass through the gateway to an engine."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.tables import PoolKey
from fairlead_testing.worlds.router_worlds import World, until

CHAT = {"model": "mock", "messages": [{"role": "user", "content": "hi"}]}
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {**CHAT, "messages": [{"role": "user", "content": ["plain text part"]}]}),
    (
        "/v1/chat/completions",
        {**CHAT, "messages": [{"role": "user", "content": ["look", {"type": "image_url", "image_url": {"url": "x"}}]}]},
    ),
    ("/v1/chat/completions", {**CHAT, "max_tokens": 100.0}),
    ("/v1/chat/completions", {**CHAT, "max_tokens": "100"}),
    ("/v1/chat/completions", {**CHAT, "stream": "false"}),
    ("/v1/chat/completions", {**CHAT, "messages": []}),
    ("/v1/chat/completions", {"messages": CHAT["messages"], "model": None}),
    ("/v1/completions", {"model": "mock", "prompt_embeds": "UEsDBA==", "max_tokens": 4}),
    ("/v1/completions", {"model": "mock", "prompt": [], "prompt_embeds": "UEsDBA=="}),
    ("/v1/completions", {"prompt": "hi"}),
    ("/v1/embeddings", {"model": "mock", "input": [{"text": "a"}]}),
    ("/v1/embeddings", {"model": "mock", "input": {"text": "a"}}),
    ("/v1/messages", {"messages": CHAT["messages"], "max_tokens": "8"}),
    ("/v1/responses", {"input": []}),
    ("/tokenize", {"prompt": "hi"}),
]


@pytest.mark.parametrize(("path", "document"), FORMS)
async def test_what_vllm_takes_reaches_the_engine_as_it_came(world: World, path: str, document: dict[str, Any]) -> None:
    running = await world.ready(count=1)
    answer = await running.client.post(path, json=document)
    assert answer.status_code == 200
    (request,) = world.engines[0].seen
    assert request["body"] == {**document, "model": "mock"}
    assert running.busy() == 0


@pytest.mark.parametrize("asked", [1, 1.0, "true", "on", "1"])
async def test_a_stream_may_be_asked_for_as_engines_let_it(world: World, asked: object) -> None:
    running = await world.ready(count=1)
    answer = await running.client.post("/v1/chat/completions", json={**CHAT, "stream": asked})
    assert answer.text.endswith("data: [DONE]\n\n")
    page = (await running.admin.get("/metrics")).text
    assert 'fairlead_router_ttft_seconds_count{pool="default/chat"} 1.0' in page


async def test_bodies_in_other_encodings_and_with_pythons_numbers_reach_the_engine(world: World) -> None:
    running = await world.ready(count=1)
    text = json.dumps({**CHAT, "temperature": float("nan")})
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert (await running.client.post("/v1/chat/completions", content=text.encode(encoding))).status_code == 200
    assert [request["raw"] for request in world.engines[0].seen] == 3 * [text.encode()]


async def test_a_request_without_a_model_is_for_the_only_one_that_its_key_opens(world: World) -> None:
    await world.start_engines(1)
    digest = sha256(b"secret-of-the-team").hexdigest()
    world.api.state.set_gateway_keys(GatewayKeyFacts(id="k", digest=digest, models=("mock",)))
    world.api.state.set_table(world.table())
    world.api.state.set_table(replace(world.table(pool=PoolKey(namespace="default", name="zeta")), model="other"))
    running = await world.start_router()
    await until(lambda: len(running.router.pools) == 2)
    body = {"messages": CHAT["messages"]}
    unclear = await running.client.post("/v1/chat/completions", json=body)
    assert (unclear.status_code, unclear.json()["error"]["message"]) == (400, "model: is missing; name one of: mock, other")
    by_header = await running.client.post("/v1/chat/completions", json=body, headers={"x-fairlead-pool": "default/zeta"})
    assert by_header.headers["x-fairlead-pool"] == "default/zeta"
    by_key = await running.client.post("/v1/chat/completions", json=body, headers={"authorization": "Bearer secret-of-the-team"})
    assert by_key.headers["x-fairlead-pool"] == "default/chat"
    assert [request["body"]["model"] for request in world.engines[0].seen] == ["other", "mock"]


async def test_a_request_for_the_pool_reaches_the_engine_with_every_other_byte_as_it_came(world: World) -> None:
    running = await world.ready(count=1)
    body = (
        b'{ "seed": 123456789012345678901234567890,\n "model" : "default/chat", "messages":[{"content":"hi","role":"user","role":"user"}]}'
    )
    assert (await running.client.post("/v1/chat/completions", content=body)).status_code == 200
    assert world.engines[0].seen[0]["raw"] == body.replace(b'"default/chat"', b'"mock"')


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize", "/v1/embeddings", "/v1/messages"])
async def test_no_client_points_an_engine_at_a_peer(world: World, path: str) -> None:
    running = await world.ready(count=1)
    body = {**CHAT, "prompt": "hi", "input": "hi"}
    for field in ("kv_transfer_params", "ec_transfer_params", "bootstrap_host"):
        answer = await running.client.post(path, json={**body, field: {"remote_host": "10.0.0.1"}})
        assert answer.status_code == 400
        assert field in answer.text
    header = {"x-request-id": "___prefill_addr_10.0.0.1:80___decode_addr_10.0.0.2:80_1"}
    assert (await running.client.post(path, json=body, headers=header)).status_code == 400
    assert not world.engines[0].seen


async def test_credentials_for_others_reach_no_engine(world: World) -> None:
    running = await world.ready(count=1)
    foreign = {"api-key": "a", "x-goog-api-key": "b", "ocp-apim-subscription-key": "c", "x-litellm-api-key": "d"}
    assert (await running.ask(headers={**foreign, "x-kept": "e"})).status_code == 200
    headers = world.engines[0].seen[0]["headers"]
    assert not foreign.keys() & headers.keys()
    assert headers["x-kept"] == "e"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
@pytest.mark.parametrize(("told", "passed"), [(b"retry-after: 17\r\n", "17"), (b"retry-after: 86400\r\n", "600"), (b"", "1")])
async def test_engines_that_are_busy_say_themselves_when_to_come_again(world: World, path: str, told: bytes, passed: str) -> None:
    running = await world.ready(count=2)
    for engine in world.engines:
        engine.raw = b"HTTP/1.1 503 Service Unavailable\r\n" + told + b"content-length: 0\r\n\r\n"
    answer = await running.client.post(path, json=CHAT, headers={"x-script": "raw"})
    assert (answer.status_code, answer.headers["retry-after"]) == (502, passed)
