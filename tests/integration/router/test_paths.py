"""Every path that engines' clients ask for, through a real router: which part answers it, and its account."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from fairlead.tables import PoolKey
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until


def _seen(world: World) -> list[str]:
    return [request["line"].rsplit(" ", 1)[0] for engine in world.engines for request in engine.seen]


ROUTED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions/batch": {"messages": [[{"role": "user", "content": "one"}], [{"role": "user", "content": "two"}]]},
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3},
    "/invocations": {"messages": [{"role": "user", "content": "hello"}]},
    "/v1/embeddings": {"input": "hello"},
    "/v2/embed": {"texts": ["hello"], "input_type": "search_query", "embedding_types": ["float"]},
    "/v1/rerank": {"query": "q", "documents": ["a", "b"]},
    "/v2/rerank": {"query": "q", "documents": ["a", "b"]},
    "/rerank": {"query": "q", "documents": ["a", "b"]},
    "/v1/score": {"text_1": "a", "text_2": ["b"]},
    "/score": {"text_1": "a", "text_2": ["b"]},
    "/pooling": {"input": "hello"},
    "/classify": {"input": ["hello"]},
    "/generative_scoring": {"query": "q", "items": ["a"], "label_token_ids": [1, 2]},
    "/v1/systemone": {"input": "hello", "questions": []},
}


@pytest.mark.parametrize("path", ROUTED)
async def test_what_computes_a_prompt_is_routed_and_in_the_accounts(world: World, path: str) -> None:
    running = await world.ready()
    answer = await running.client.post(path, json={"model": "default/chat", **ROUTED[path]}, headers={"x-session-id": "s1"})
    assert answer.status_code == 200
    assert answer.headers["x-fairlead-decision"]
    (request,) = [request for engine in world.engines for request in engine.seen]
    assert request["line"] == f"POST {path} HTTP/1.1"
    assert request["body"] == {"model": "mock", **ROUTED[path]}
    await until(lambda: running.busy() == 0)
    assert running.pool.counters.served == 1


INVOKED: tuple[dict[str, Any], ...] = (
    {"prompt": "hello"},
    {"prompt_embeds": "UEsDBA=="},
    {"messages": None, "prompt": "hello"},
    {"input": "hello"},
    {"query": "q", "documents": ["a"]},
    {"queries": "q", "documents": ["a"]},
    {"queries": "q", "items": ["a"]},
    {"text_1": "a", "text_2": ["b"]},
    {"data_1": "a", "data_2": "b"},
    {"data": {"a": 1}, "task": "plugin"},
)
"""vLLM's services on its one path for SageMaker, by the fields of a document."""


async def test_the_one_path_of_sagemaker_takes_every_kind_of_document_that_engines_take(world: World) -> None:
    running = await world.ready()
    for document in INVOKED:
        answer = await running.client.post("/invocations", json={"model": "mock", **document})
        assert (answer.status_code, document) == (200, document)
    assert running.pool.counters.served == len(INVOKED)


async def test_an_engine_hears_the_id_that_the_client_is_shown(world: World) -> None:
    running = await world.ready(count=1)
    chat = {"model": "mock", "messages": []}
    sent = [
        [("x-request-id", "first"), ("x-request-id", "second")],
        [("x-request-id", ""), ("x-request-id", "b")],
        [],
        [("x-request-id", "x" * 300)],
    ]
    for path in ("/v1/chat/completions", "/tokenize"):
        shown = [(await running.client.post(path, json=chat, headers=headers)).headers["x-request-id"] for headers in sent]
        heard = [request["headers"]["x-request-id"] for request in world.engines[0].seen if path in request["line"]]
        assert shown == heard
        assert shown[:2] == ["first", "b"]


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize", "/v1/messages/count_tokens"])
async def test_what_computes_nothing_goes_where_least_is_under_way_past_the_scheduler(world: World, path: str) -> None:
    running = await world.ready()
    busy = asyncio.create_task(running.ask(script="silent"))
    await until(lambda: any(engine.seen for engine in world.engines))
    (loaded,) = [engine for engine in world.engines if engine.seen]
    for _ in range(3):
        answer = await running.client.post(path, json={"model": "default/chat", "prompt": "x", "tokens": [1]})
        assert answer.status_code == 200
        assert answer.headers["x-fairlead-instance"] != loaded.name
        assert answer.json()["model"] == "mock"
    busy.cancel()
    await until(lambda: running.busy() == 0)
    counters = running.pool.counters
    assert (counters.submitted, counters.direct["served"]) == (1, 3)
    page = (await running.admin.get("/metrics")).text
    assert 'fairlead_router_direct_requests_total{outcome="served",pool="default/chat"} 3.0' in page


async def test_a_direct_answer_that_is_an_error_whatever_its_status_is_made_elsewhere(world: World) -> None:
    running = await world.ready(count=2)
    body = b'{"object": "error", "message": "boom", "code": 500}'
    world.engines[0].raw = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    for path in ("/tokenize", "/v1/messages/count_tokens"):
        answer = await running.client.post(path, json={"model": "mock"}, headers={"x-script": "raw@i0"})
        assert (answer.status_code, answer.headers["x-fairlead-instance"]) == (200, "i1")
    world.engines[1].raw = world.engines[0].raw
    answer = await running.client.post("/tokenize", json={"model": "mock"}, headers={"x-script": "raw"})
    assert (answer.status_code, "boom" in answer.text) == (502, True)
    assert (running.pool.counters.direct["served"], running.pool.counters.direct["failed"]) == (2, 1)


async def test_a_direct_request_tries_another_instance_and_then_says_why_none_answered(world: World) -> None:
    running = await world.ready(count=2)
    answer = await running.client.post("/tokenize", json={"model": "mock"}, headers={"x-script": "error-500@i0"})
    assert (answer.status_code, answer.headers["x-fairlead-instance"]) == (200, "i1")
    answer = await running.client.post("/tokenize", json={"model": "mock"}, headers={"x-script": "error-500"})
    assert answer.status_code == 502
    assert answer.headers["x-fairlead-rejection"] == "rejected-upstream-failed"
    refused = await running.client.post("/tokenize", json={"model": "mock"}, headers={"x-script": "bad-request"})
    assert refused.status_code == 400
    assert running.pool.counters.direct == {"served": 1, "failed": 1, "rejected-by-engine": 1}
    assert running.busy() == 0


async def test_an_empty_pool_refuses_direct_requests_too(world: World) -> None:
    running = await world.ready(count=0)
    answer = await running.client.post("/tokenize", json={"model": "mock", "prompt": "x"})
    assert (answer.status_code, answer.headers["x-fairlead-rejection"]) == (503, "rejected-no-endpoints")


# ── answered here ──


async def test_health_ping_and_version_are_answered_as_engines_answer_them(world: World) -> None:
    running = await world.ready()
    for method, path in (("GET", "/health"), ("GET", "/ping"), ("POST", "/ping"), ("HEAD", "/health")):
        answer = await running.client.request(method, path)
        assert (answer.status_code, answer.content) == (200, b"")
    assert (await running.client.get("/version")).json()["version"].startswith("fairlead-router ")
    running.router.informing.draining = True
    assert (await running.client.get("/health")).status_code == 503
    assert not _seen(world)


async def test_models_are_found_by_id_with_slashes_encoded_or_not(world: World) -> None:
    await world.start_engines(1)
    world.api.state.set_table(world.table(model="Qwen/Qwen3-32B"))
    running = await world.start_router()
    await until(lambda: running.router.informing.synced)
    for path in ("/v1/models/Qwen/Qwen3-32B", "/v1/models/Qwen%2FQwen3-32B"):
        assert (await running.client.get(path)).json()["id"] == "Qwen/Qwen3-32B"
    missing = await running.client.get("/v1/models/gpt-4")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/metrics",
        "/load",
        "/sleep",
        "/reset_prefix_cache",
        "/v1/load_lora_adapter",
        "/v1/chat%2fcompletions",
        "/kv_event_sources",
    ],
)
async def test_a_path_that_is_not_offered_is_a_404_by_name_and_reaches_no_engine(world: World, path: str) -> None:
    running = await world.ready()
    for method in ("GET", "POST"):
        answer = await running.client.request(method, path, json={"model": "mock", "messages": [{"role": "user", "content": "x"}]})
        assert answer.status_code == 404
        assert f"'{path}' is not a path of this gateway; there are " in answer.json()["error"]["message"]
        assert "/v1/chat/completions" in answer.json()["error"]["message"]
    assert not _seen(world)


async def test_a_wrong_method_is_told_which_is_right(world: World) -> None:
    running = await world.ready()
    answer = await running.client.get("/v1/messages")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["type"] == "error", "in Anthropic's shape"
    answer = await running.client.post("/v1/responses/resp_1")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


# ── responses that are held ──


async def _made(running: RunningRouter) -> tuple[str, str]:
    answer = await running.client.post("/v1/responses", json={"model": "mock", "input": "hello"})
    return answer.json()["id"], answer.json()["engine"]


async def test_a_response_is_retrieved_and_cancelled_where_it_was_made(world: World) -> None:
    running = await world.ready(count=3)
    for _ in range(6):
        response, engine = await _made(running)
        got = await running.client.get(f"/v1/responses/{response}", params={"include": "x"})
        assert got.json() == {"id": response, "engine": engine, "line": f"GET /v1/responses/{response}?include=x HTTP/1.1"}
        cancelled = await running.client.post(f"/v1/responses/{response}/cancel")
        assert (cancelled.status_code, cancelled.json()["engine"]) == (200, engine)
    assert sum("/v1/responses/" in line for line in _seen(world)) == 12, "nobody else was asked"


async def test_a_response_another_router_saw_being_made_is_looked_for_and_then_remembered(world: World) -> None:
    first = await world.ready(count=3)
    second = await world.start_router("router-1", seed=2)
    await until(lambda: second.router.informing.synced)
    response, engine = await _made(first)
    assert (await second.client.post(f"/v1/responses/{response}/cancel")).json()["engine"] == engine
    asked = len(_seen(world))
    assert (await second.client.get(f"/v1/responses/{response}")).json()["engine"] == engine
    assert len(_seen(world)) == asked + 1


async def test_a_request_that_goes_on_from_a_response_goes_to_its_holder_from_any_router(world: World) -> None:
    first = await world.ready(count=3)
    second = await world.start_router("router-1", seed=2)
    await until(lambda: second.router.informing.synced)
    for asked in (first, second, first):
        response, engine = await _made(first)
        for turn in range(3):
            body = {"model": "mock", "input": f"turn {turn}", "previous_response_id": response}
            answer = (await asked.client.post("/v1/responses", json=body)).json()
            assert answer["engine"] == engine
            response = answer["id"]
    assert first.busy() == second.busy() == 0


async def test_a_chain_of_responses_is_the_session_of_its_first_request_or_one_of_its_own(world: World) -> None:
    running = await world.ready(count=3, policy="fairlead")
    named = (await running.client.post("/v1/responses", json={"model": "mock", "input": "a"}, headers={"x-session-id": "s1"})).json()
    bare = (await running.client.post("/v1/responses", json={"model": "mock", "input": "b"})).json()
    for before, session in ((named, "s1"), (bare, bare["id"])):
        for _ in range(2):
            body = {"model": "mock", "input": "go on", "previous_response_id": before["id"]}
            after = (await running.client.post("/v1/responses", json=body)).json()
            assert (found := running.scheduler.binding(session)) is not None and found.instance == after["engine"] == before["engine"]
            before = after


async def test_where_nobody_holds_the_response_the_request_is_routed_and_its_engine_says_so(world: World) -> None:
    running = await world.ready(count=3)
    for previous in ("resp_9", "resp/9", "", 7, None):
        answer = await running.client.post("/v1/responses", json={"model": "mock", "input": "x", "previous_response_id": previous})
        assert answer.status_code == 200
    assert sum("/v1/responses/" in line for line in _seen(world)) == 3, "looked for once at each, where it is an id"


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"x-session-id": "s"}, {}),
        ({"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a"}, {}),
        ({"thread-id": "s"}, {"prompt_cache_key": "p"}),
        ({}, {"prompt_cache_key": "p", "user": "u"}),
        ({}, {"session_id": "s"}),
        ({}, {"metadata": {"user_id": '{"session_id": "5eec5eec-0000"}'}}),
    ],
)
async def test_requests_of_one_session_stay_together_wherever_it_is_named(
    world: World, headers: dict[str, str], fields: dict[str, Any]
) -> None:
    running = await world.ready(count=4, policy="sticky")
    served = set()
    for turn in range(6):
        body = {"model": "mock", "messages": [{"role": "user", "content": f"turn {turn} " * 3000}], **fields}
        answer = await running.client.post("/v1/chat/completions", json=body, headers=headers)
        served.add(answer.headers["x-fairlead-instance"])
    assert len(served) == 1


async def test_a_response_nobody_holds_is_a_404_with_its_reason(world: World) -> None:
    running = await world.ready()
    for answer in (await running.client.get("/v1/responses/resp_9"), await running.client.post("/v1/responses/resp_9/cancel")):
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "response_not_found"
        assert "held by no instance" in answer.json()["error"]["message"]


# ── forms ──


def _form(running: RunningRouter, model: str = "mock") -> tuple[dict[str, str], dict[str, tuple[str, bytes, str]]]:
    return {"model": model, "language": "en"}, {"file": ("speech.wav", bytes(range(256)) * 4000, "audio/wav")}


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/audio/translations"])
@pytest.mark.parametrize("model", ["mock", "default/chat"])
async def test_a_form_passes_whole_with_its_model_renamed(world: World, path: str, model: str) -> None:
    running = await world.ready()
    data, files = _form(running, model)
    answer = await running.client.post(path, data=data, files=files)
    assert answer.status_code == 200
    (request,) = [request for engine in world.engines for request in engine.seen]
    assert files["file"][1] in request["raw"]
    assert b'name="model"\r\n\r\nmock\r\n' in request["raw"]
    assert running.pool.counters.direct["served"] == 1
    assert running.busy() == 0


async def test_a_form_without_a_length_passes_too_with_its_model_behind_the_file(world: World) -> None:
    running = await world.ready()

    async def pieces() -> AsyncIterator[bytes]:
        yield b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for _ in range(20):
            yield b"x" * 50_000
        yield b'\r\n--b\r\ncontent-disposition: form-data; name="model"\r\n\r\ndefault/chat\r\n--b--\r\n'

    headers = {"content-type": "multipart/form-data; boundary=b"}
    answer = await running.client.post("/v1/audio/transcriptions", content=pieces(), headers=headers)
    assert answer.status_code == 200
    (request,) = [request for engine in world.engines for request in engine.seen]
    assert request["raw"].count(b"x") == 1_000_000
    assert request["raw"].endswith(b"mock\r\n--b--\r\n")


async def test_a_form_with_a_second_model_behind_its_file_reaches_no_engine_whole(world: World) -> None:
    running = await world.ready(count=1)

    async def pieces() -> AsyncIterator[bytes]:
        yield b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nmock\r\n'
        yield b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for _ in range(20):
            yield b"x" * 50_000
        yield b'\r\n--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nanother\r\n--b--\r\n'

    headers = {"content-type": "multipart/form-data; boundary=b"}
    answer = await running.client.post("/v1/audio/transcriptions", content=pieces(), headers=headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
    await until(lambda: running.busy() == 0)
    assert not [request for engine in world.engines for request in engine.seen if b"another" in request["raw"]]


async def test_forms_that_cannot_be_used_are_told_why(world: World) -> None:
    running = await world.ready(count=1)
    no_form = await running.client.post("/v1/audio/transcriptions", json={"model": "mock"})
    assert no_form.json()["error"]["code"] == "invalid_content_type"
    twice = await running.client.post(
        "/v1/audio/transcriptions", data={"model": ["mock", "other"]}, files={"file": ("a", b"x", "audio/wav")}
    )
    assert (twice.status_code, twice.json()["error"]["message"]) == (400, "model: is in the form twice; send it once")
    unknown = await running.client.post("/v1/audio/transcriptions", data={"model": "none"}, files={"file": ("a", b"x", "audio/wav")})
    assert unknown.status_code == 404
    large = {"file": ("a", b"x" * 34_000_000, "audio/wav")}
    too_large = await running.client.post("/v1/audio/transcriptions", data={"model": "mock"}, files=large)
    assert too_large.status_code == 413
    assert not _seen(world)
    assert running.busy() == 0


async def test_a_form_without_a_model_is_for_the_one_that_is_served(world: World) -> None:
    running = await world.ready(count=1)
    answer = await running.client.post("/v1/audio/transcriptions", files={"file": ("a", b"x", "audio/wav")})
    assert (answer.status_code, answer.headers["x-fairlead-pool"]) == (200, "default/chat")
    world.api.state.set_table(replace(world.table(pool=PoolKey(namespace="default", name="zeta")), model="other"))
    await until(lambda: len(running.router.pools) == 2)
    no_model = await running.client.post("/v1/audio/transcriptions", files={"file": ("a", b"x", "audio/wav")})
    assert (no_model.status_code, no_model.json()["error"]["param"]) == (400, "model")


async def test_several_pools_of_one_model_are_chosen_by_header_for_direct_requests_too(world: World) -> None:
    running = await world.ready()
    world.api.state.set_table(world.table(pool=PoolKey(namespace="default", name="zeta")))
    await until(lambda: len(running.router.pools) == 2)
    answer = await running.client.post("/tokenize", json={"model": "mock"}, headers={"x-fairlead-pool": "default/zeta"})
    assert answer.headers["x-fairlead-pool"] == "default/zeta"


async def test_an_engine_that_has_seen_enough_of_a_form_is_not_sent_another_request_behind_half_of_it(world: World) -> None:
    running = await world.ready(count=1)
    await running.router._tasks.stop("scrape", "kv events")  # whose connections others could take
    running.router.upstream.close()
    engine = world.engines[0]
    engine.early_answer = b"HTTP/1.1 413 X\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    head = b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\ncontent-length: 3000000\r\n\r\n"
    writer.write(
        head
        + b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nmock\r\n--b\r\ncontent-disposition: form-data; name="file"\r\n\r\n'
        + b"x" * 100_000
    )
    await until(lambda: bool(engine.cut_short))
    writer.write(b"x" * 400_000)
    answer = await asyncio.wait_for(reader.readuntil(b"{}"), PATIENCE_SECONDS)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer
    engine.early_answer = b""
    before = running.router.upstream.opened
    assert (await running.client.post("/tokenize", json={"model": "mock"})).status_code == 200
    assert running.router.upstream.opened == before + 1, "on a connection of its own"
    writer.close()
    await until(lambda: running.busy() == 0)


async def test_an_upload_that_is_refused_halfway_hears_why_and_its_connection_ends(world: World) -> None:
    running = await world.ready(count=1)
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    head = b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\ncontent-length: 3000000\r\n\r\n"
    writer.write(
        head
        + b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nnone\r\n--b\r\ncontent-disposition: form-data; name="file"\r\n\r\n'
        + b"x" * 600_000
    )
    answer = await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"model_not_found" in answer
    writer.close()


async def test_a_client_that_has_read_why_its_upload_was_refused_and_leaves_is_no_fault_of_the_router(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    running = await world.ready(count=1)
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    head = b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\ncontent-length: 3000000\r\n\r\n"
    field = b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nmock\r\n'
    writer.write(head + field + b'--b\r\ncontent-disposition: form-data; name="file"\r\n\r\nx\r\n')
    await until(lambda: running.busy() == 1)
    writer.write(field + b"--b\r\n")  # a second one
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_SECONDS)).startswith(b"HTTP/1.1 400 ")
    writer.transport.abort()
    await until(lambda: not running.server.server_state.tasks)
    assert running.router.metrics.client_errors["internal_error"] == 0
    assert "Exception in ASGI application" not in caplog.text


async def test_a_body_nobody_asked_for_is_not_passed_on_behind_a_retrieval(world: World) -> None:
    running = await world.ready(count=1)
    response, _ = await _made(running)
    smuggled = b"POST /reset_prefix_cache HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
    for method, path in (("GET", f"/v1/responses/{response}"), ("POST", f"/v1/responses/{response}/cancel")):
        assert (await running.client.request(method, path, content=smuggled)).status_code == 200
    assert (await running.client.post("/tokenize", json={"model": "mock"})).status_code == 200
    assert not any("reset_prefix_cache" in line for line in _seen(world))
    assert len(_seen(world)) == 4


# ── protocols ──


async def test_errors_are_in_the_shape_of_the_clients_protocol(world: World) -> None:
    running = await world.ready()
    anthropic = await running.client.post("/v1/messages", json={"model": "none", "messages": [{"role": "user", "content": "x"}]})
    assert anthropic.json()["error"]["type"] == "not_found_error"
    assert anthropic.json()["type"] == "error"
    responses = await running.client.post("/v1/responses", json={"model": "mock"})
    assert responses.json()["error"]["param"] == "input"


EVENTS: dict[str, list[dict[str, Any]]] = {
    "/v1/responses": [
        {"type": "response.created", "response": {"id": "resp_7-i0", "status": "in_progress"}},
        {"type": "response.output_text.delta", "delta": "tok "},
        {
            "type": "response.completed",
            "response": {
                "id": "resp_7-i0",
                "output": ["x" * 20_000],
                "usage": {"output_tokens": 5, "input_tokens_details": {"cached_tokens": 2}},
            },
        },
    ],
    "/v1/messages": [
        {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 0, "cache_read_input_tokens": 2}}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "tok " * 3000}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ],
}


def _document(path: str) -> dict[str, object]:
    return {"model": "mock", "stream": True, "input": "hi", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}


def _event(event: dict[str, Any]) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


@pytest.mark.parametrize("path", EVENTS)
async def test_usage_is_read_in_each_protocols_own_shape(world: World, path: str) -> None:
    running = await world.ready(count=1)
    engine = world.engines[0]
    engine.events = [_event(event) for event in EVENTS[path]]
    answer = await running.client.post(path, json=_document(path))
    assert answer.text == "".join(engine.events)
    await until(lambda: any(load.completed for load in world.api.state.stored("loads")))
    (load,) = [load for load in world.api.state.stored("loads") if load.completed]
    assert (load.output_tokens, load.hit_tokens) == (5, 2)
    if path == "/v1/responses":
        assert (await running.client.get("/v1/responses/resp_7-i0")).status_code == 200
        assert len(engine.seen) == 2, "its name was learnt from the stream"


@pytest.mark.parametrize("path", EVENTS)
async def test_the_first_token_is_the_first_piece_of_text_not_the_first_event(world: World, path: str) -> None:
    running = await world.ready(count=1)
    engine = world.engines[0]
    engine.events = [_event(event) for event in EVENTS[path]]
    engine.stepwise_events = True
    task = asyncio.create_task(running.client.post(path, json=_document(path)))
    await until(lambda: len(engine.seen) == 1)
    await asyncio.sleep(0.2)
    assert running.pool.counters.ttft.counts == [0] * len(running.pool.counters.ttft.counts), "the engine has made no token yet"
    while not task.done():
        engine.step.set()
        await asyncio.sleep(0.01)
    assert sum(running.pool.counters.ttft.counts) == 1
    (row,) = running.pool.scheduler.in_flight()
    assert row.in_flight == 0


@pytest.mark.parametrize("path", EVENTS)
async def test_a_stream_that_breaks_ends_with_the_error_event_of_its_protocol(world: World, path: str) -> None:
    running = await world.ready(count=1)
    engine = world.engines[0]
    engine.events = [_event(event) for event in EVENTS[path][:2]]
    engine.hang_up_after_events = True
    answer = await running.client.post(path, json=_document(path))
    name, _, data = answer.text.removesuffix("\n\n").rsplit("\n\n", 1)[1].partition("\n")
    assert name == "event: error"
    error = json.loads(data.removeprefix("data: "))
    assert error["type"] == "error"
    if path == "/v1/messages":
        assert error["error"]["type"] == "api_error"
        assert "was lost" in error["error"]["message"]
    else:
        assert (error["code"], error["sequence_number"]) == ("rejected-upstream-failed", 2)
    await until(lambda: running.busy() == 0)
    assert running.pool.counters.failed == 1
