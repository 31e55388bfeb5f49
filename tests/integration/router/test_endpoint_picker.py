"""A proxy that speaks Envoy's ext_proc asks a router for the target of each request, and reports the outcome.

The tests named `gateway_following_epp_routing…` and `gateway_destination_endpoint_served` cover the expectations of the
Gateway API Inference Extension's conformance suite under those names. It steers by a header for tests, these by the
subset that the protocol has for that.
"""

import asyncio
import gzip
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from fairlead.routing.knowledge.circuit import CircuitSettings
from fairlead.tables import EarlyRejectionFacts, Outlook
from fairlead_process.starting import bind
from fairlead_router.settings import Timeouts
from fairlead_testing.builders.routing import having_seen
from fairlead_testing.fakes.system_api import ROUTER_TOKEN
from fairlead_testing.running.ext_proc_proxy import (
    Proxy,
    request_body,
    request_headers,
    response_body,
    response_headers,
)
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until
from processkube.kubernetes_api.serving.certificates import ensure_certificates
from processkube.testing.ports import free_port


async def _picking(running: RunningRouter) -> str:
    """Let the router pick, and return the address of its picker."""
    listener = bind("picker", "127.0.0.1", 0)
    await running.router.picker.listen(listener)
    return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
async def proxies() -> AsyncIterator[list[Proxy]]:
    made: list[Proxy] = []
    yield made
    for proxy in made:
        await proxy.__aexit__()


async def _proxy(running: RunningRouter, proxies: list[Proxy], authority: str | None = None) -> Proxy:
    proxies.append(Proxy(await _picking(running), authority=authority))
    return proxies[-1]


CONTENT = b'data: {"choices": [{"index": 0, "delta": {"content": "tok"}, "finish_reason": "stop"}]}\n\n'


def _chat(text: str = "hello", **more: object) -> bytes:
    return json.dumps({"model": "mock", "messages": [{"role": "user", "content": text}], "max_tokens": 3, **more}).encode()


def _code(body: bytes) -> str:
    code: str = json.loads(body)["error"]["code"]
    return code


async def _all_settled(running: RunningRouter) -> None:
    await until(lambda: running.busy() == 0 and not running.pool.account.direct and not running.router.picker.active)


# ── where requests go ──


@pytest.mark.parametrize("designated", [(2,), (0, 1), (0, 1, 2)])
async def test_gateway_following_epp_routing_reaches_only_designated_pods(
    world: World, proxies: list[Proxy], designated: tuple[int, ...]
) -> None:
    running = await world.ready(3)
    proxy = await _proxy(running, proxies)
    addresses = [world.engines[number].address for number in designated]
    answers = await asyncio.gather(*(proxy.request(_chat(f"text {number}"), subset=addresses) for number in range(24)))
    assert {answer.status for answer in answers} == {200}
    assert {answer.served for answer in answers} == set(addresses)
    assert all(set(answer.endpoints) <= set(addresses) for answer in answers)
    assert {engine.address for engine in world.engines if engine.seen} == set(addresses)
    await _all_settled(running)


async def test_gateway_following_epp_routing_dp_takes_each_port_of_an_address_for_an_endpoint(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(2)
    proxy = await _proxy(running, proxies)
    assert (await proxy.request(_chat(), subset=world.engines[1].address)).endpoints == (world.engines[1].address,)
    either = await asyncio.gather(*(proxy.request(_chat(), subset=["127.0.0.1"]) for _ in range(6)))
    assert {answer.served for answer in either} == {engine.address for engine in world.engines}


async def test_gateway_destination_endpoint_served_is_what_counts(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(3)
    proxy = await _proxy(running, proxies)
    await world.engines[0].stop()
    answers = [await proxy.request(_chat(f"text {number}")) for number in range(6)]
    assert {answer.status for answer in answers} == {200}
    moved = [answer for answer in answers if len(answer.tried) > 1]
    assert moved
    assert all(answer.tried == list(answer.endpoints[: len(answer.tried)]) for answer in answers)  # the picker's order
    names = {engine.address: engine.name for engine in world.engines}
    assert all(answer.headers["x-fairlead-instance"] == names[answer.served] for answer in answers)
    await _all_settled(running)
    counters = running.pool.counters
    assert (counters.served, counters.retries, counters.upstream_errors["passed-over"]) == (6, len(moved), len(moved))


async def test_endpoints_are_ordered_and_no_more_than_may_be_retried(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(6)
    answer = await (await _proxy(running, proxies)).request(_chat())
    assert len(answer.endpoints) == 1 + running.router.settings.picker_fallbacks
    assert len(set(answer.endpoints)) == len(answer.endpoints)


@pytest.mark.parametrize(("policy", "scored", "told"), [("fairlead", True, 3), ("fairlead", False, 0), ("random", True, 0)])
async def test_scores_are_said_where_that_is_set_and_the_policy_compares(
    world: World, proxies: list[Proxy], policy: str, scored: bool, told: int
) -> None:
    await world.start_engines(3)
    world.api.state.set_table(world.table(policy=policy))
    running = await world.start_router(picker_scores=scored)
    await until(lambda: running.router.informing.synced)
    answer = await (await _proxy(running, proxies)).request(_chat())
    scores = answer.scores or {}
    assert len(scores) == told, "those that were not chosen too"
    assert set(scores) <= {engine.address for engine in world.engines}
    assert not told or scores[answer.endpoints[0]] == max(scores.values()) == 1.0


async def test_the_chosen_rank_goes_along_and_fallbacks_have_the_same_ranks(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(4)
    for engine in world.engines[:3]:
        running.pool.see_ranks(engine.name, range(4), running.router.now())
    proxy = await _proxy(running, proxies)
    await world.engines[0].stop()
    for number in range(12):
        answer = await proxy.request(_chat(f"text {number}"), headers={"x-data-parallel-rank": "99"})
        ranked = {engine.address for engine in world.engines[:3]}
        assert len({address in ranked for address in answer.endpoints}) == 1, "a proxy says the same rank to all"
        rank = answer.headers.get("x-fairlead-rank")
        assert (rank in ("0", "1", "2", "3")) == (answer.served in ranked)
        (engine,) = (one for one in world.engines if one.address == answer.served)
        assert engine.seen[-1]["headers"].get("x-data-parallel-rank") == rank
        assert answer.headers["x-fairlead-instance"] == engine.name
    await _all_settled(running)


async def test_a_request_without_a_body_goes_to_some_instance(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(2)
    answer = await (await _proxy(running, proxies)).request(None, method="GET", path="/v1/models")
    assert answer.endpoints
    await _all_settled(running)
    assert sum(running.pool.counters.direct.values()) == 1


async def test_a_request_past_the_scheduler_falls_back_and_then_keeps_away_from_what_failed(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(3)
    state = running.scheduler._state
    state.settings = replace(state.settings, circuit=CircuitSettings(backoff_seconds=PATIENCE_SECONDS))
    proxy = await _proxy(running, proxies)
    gone, *_ = (engine.address for engine in world.engines)
    await world.engines[0].stop()
    body = json.dumps({"model": "mock", "prompt": "x"}).encode()
    answers = [await proxy.request(body, path="/tokenize") for _ in range(4)]
    assert {answer.status for answer in answers} == {200}
    assert [gone in answer.tried for answer in answers] == [True, True, True, False]
    part = await proxy.request(body, path="/tokenize", subset=[gone, world.engines[2].address])
    assert part.endpoints == (world.engines[2].address, gone)
    await _all_settled(running)
    assert running.pool.counters.direct["served"] == 5


async def test_a_response_that_nobody_remembers_is_looked_for_with_headers_that_engines_understand(
    world: World, proxies: list[Proxy]
) -> None:
    running = await world.ready(3)
    answer = await (await _proxy(running, proxies)).request(None, method="GET", path="/v1/responses/resp_7-i1")
    assert (answer.status, answer.endpoints) == (200, (world.engines[1].address,)), "nobody else has it"
    await _all_settled(running)


async def test_a_request_that_goes_on_from_a_response_is_picked_for_its_holder(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(3)
    proxy = await _proxy(running, proxies)
    body = json.dumps({"model": "mock", "input": "go on", "previous_response_id": "resp_7-i2"}).encode()
    for _ in range(3):  # looked for, and remembered
        answer = await proxy.request(body, path="/v1/responses")
        assert (answer.status, answer.served) == (200, world.engines[2].address)
    other = await proxy.request(body, path="/v1/responses", subset=[world.engines[0].address])
    assert other.served == world.engines[0].address, "a gateway's word is above it"
    await _all_settled(running)


async def test_a_response_whose_holder_is_no_member_of_the_subset_is_a_503(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(2)
    proxy = await _proxy(running, proxies)
    for _ in range(2):  # looked for, and remembered
        answer = await proxy.request(None, method="GET", path="/v1/responses/resp_7-i1", subset=[world.engines[0].address])
        assert (answer.status, answer.headers["x-llm-d-request-dropped-reason"]) == (503, "rejected-no-endpoints")
    member = await proxy.request(None, method="GET", path="/v1/responses/resp_7-i1", subset=[world.engines[1].address])
    assert (member.status, member.endpoints) == (200, (world.engines[1].address,))
    await _all_settled(running)
    assert running.pool.counters.direct["refused"] == 2


async def test_a_session_stays_where_it_was(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(3, policy="sticky")
    proxy = await _proxy(running, proxies)
    served = [(await proxy.request(_chat(f"turn {turn}"), headers={"x-session-id": "one"})).served for turn in range(4)]
    assert len(set(served)) == 1


async def test_prefixes_of_routes_and_names_of_pools_are_understood(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(1)
    proxy = await _proxy(running, proxies)
    body = json.dumps({"model": "default/chat", "prompt": "hello"}).encode()
    answer = await proxy.request(
        body, path="/team-a/v1/completions?x=1", headers={"cookie": "secret", "x-prefiller-host-port": "1.2.3.4:5"}
    )
    assert answer.status == 200
    (seen,) = world.engines[0].seen
    assert seen["body"] == {"model": "mock", "prompt": "hello"}
    assert not {"cookie", "x-prefiller-host-port"} & set(seen["headers"])
    assert seen["headers"]["x-request-id"]


async def test_the_service_that_was_called_tells_the_pool(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(1)
    other = await _proxy(running, proxies, "other-picker.default.svc.cluster.local:9002")
    assert (await other.request(_chat())).status == 200  # no such pool is served: the model tells
    own = await _proxy(running, proxies, "outbound|9002||chat-picker.default.svc.cluster.local")
    assert (await own.request(None, method="GET", path="/v1/models")).endpoints
    assert _code((await own.request(_chat(model="else"))).body) == "model_not_found"


async def test_a_large_body_reaches_the_engine_whole(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(1)
    answer = await (await _proxy(running, proxies)).request(_chat("ü" * 1_000_000))
    assert answer.status == 200
    assert world.engines[0].seen[0]["body"]["messages"][0]["content"] == "ü" * 1_000_000


# ── what comes of them ──


async def test_a_stream_passes_through_and_its_first_token_and_usage_are_known(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(1)
    body = _chat(stream=True, stream_options={"include_usage": True})
    answer = await (await _proxy(running, proxies)).request(body)
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert answer.headers["x-fairlead-pool"] == "default/chat"
    assert answer.headers["x-fairlead-decision"]
    await _all_settled(running)
    counters = running.pool.counters
    assert (counters.served, counters.output_tokens, sum(counters.ttft.counts)) == (1, 3, 1)
    await until(lambda: bool(world.api.state.stored("decisions")))


async def test_what_an_engine_refuses_and_what_it_fails_are_counted_apart(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(1)
    proxy = await _proxy(running, proxies)
    assert (await proxy.request(_chat(), headers={"x-script": "bad-request"})).status == 400
    assert (await proxy.request(_chat(), headers={"x-script": "error-500"})).status == 500
    await _all_settled(running)
    counters = running.pool.counters
    assert (counters.served, counters.rejected_by_engine, counters.failed) == (0, 1, 1)
    assert counters.upstream_errors["status"] == 1


async def test_a_proxy_that_reaches_no_endpoint_answers_itself_and_nothing_stays(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(2)
    proxy = await _proxy(running, proxies)
    for engine in world.engines:
        await engine.stop()
    answer = await proxy.request(_chat())
    assert (answer.status, answer.served) == (503, "")
    await _all_settled(running)
    assert running.pool.counters.failed == 1


async def test_a_client_that_goes_while_its_request_waits_leaves_the_queue(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(1, prefills_in_flight=1, policy="least-loaded")
    proxy = await _proxy(running, proxies)
    first, second = proxy.open(), proxy.open()
    body = _chat(stream=True)
    await first.say(request_headers(), request_body(body, ended=True))
    await first.hear()  # it is on its way to the engine
    await second.say(request_headers(), request_body(body, ended=True))
    await until(lambda: running.pool.account.waiting == 1)
    second.call.cancel()
    await until(lambda: running.pool.account.waiting == 0)
    first.call.cancel()
    await _all_settled(running)
    assert running.pool.counters.cancelled == 2


async def test_a_queued_request_goes_when_its_turn_comes(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(1, prefills_in_flight=1, policy="least-loaded")
    proxy = await _proxy(running, proxies)
    first, second = proxy.open(), proxy.open()
    for stream in (first, second):
        await stream.say(request_headers(), request_body(_chat(stream=True), ended=True))
    await first.hear()
    await until(lambda: running.pool.account.waiting == 1)
    await first.say(response_headers(200, {"content-type": "text/event-stream"}), response_body(CONTENT, ended=False))
    assert (await second.hear()).request_headers.response.header_mutation.set_headers
    first.call.cancel()
    second.call.cancel()
    await _all_settled(running)


# ── refusals ──


@pytest.mark.parametrize("subset", [[], ["10.9.9.9:8000"], ""])
async def test_a_subset_without_a_member_is_a_503(world: World, proxies: list[Proxy], subset: object) -> None:
    running = await world.ready(2)
    answer = await (await _proxy(running, proxies)).request(_chat(), subset=subset)
    assert answer.status == 503
    assert answer.headers["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"
    assert answer.immediate.details == "fairlead_rejected-no-endpoints"
    assert running.busy() == 0


async def test_a_pool_without_an_instance_is_a_503(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(0)
    world.api.state.set_table(replace(world.table(version=2), outlook=Outlook.CLOSED))
    await until(lambda: running.pool.table.version == 2)
    proxy = await _proxy(running, proxies)
    for answer in (await proxy.request(_chat()), await proxy.request(None, method="GET", path="/v1/models")):
        assert (answer.status, answer.headers["x-fairlead-rejection"]) == (503, "rejected-scaled-to-zero")
        assert int(answer.headers["retry-after"]) >= 1


async def test_overload_is_a_429_with_retry_after_and_reason(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(1, prefills_in_flight=1, early_rejection=EarlyRejectionFacts(mode="Load", headroom=0.001))
    having_seen(running.scheduler)
    proxy = await _proxy(running, proxies)
    assert (await proxy.request(_chat("x" * 200_000))).status == 200, "an idle instance tries what an estimate would refuse"
    occupied = asyncio.create_task(running.ask(text="hello", script="stepwise", stream=True, max_tokens=2))
    await until(lambda: len(world.engines[0].seen) == 2)
    answer = await proxy.request(_chat("y" * 200_000))
    assert answer.status == 429
    assert answer.headers["x-fairlead-rejection"] == "rejected-predicted-ttft"
    assert int(answer.headers["retry-after"]) >= 1
    assert _code(answer.body) == "rejected-predicted-ttft"
    world.engines[0].step.set()
    assert (await occupied).status_code == 200


@pytest.mark.parametrize(
    ("body", "path", "status", "code"),
    [
        (b"{", "/v1/completions", 400, "invalid_json"),
        (b'{"model": "mock"}', "/v1/completions", 400, "missing_field"),
        (b'{"model": "none", "prompt": "x"}', "/v1/completions", 404, "model_not_found"),
        (b"{}", "/reset_prefix_cache", 404, "not_found"),
        (b" " * (32 * 1024 * 1024 + 1), "/v1/completions", 413, "request_too_large"),
    ],
)
async def test_what_cannot_be_used_is_answered_as_the_gateway_answers_it(
    world: World, proxies: list[Proxy], body: bytes, path: str, status: int, code: str
) -> None:
    running = await world.ready(1)
    answer = await (await _proxy(running, proxies)).request(body, path=path)
    assert (answer.status, _code(answer.body)) == (status, code)
    assert answer.headers["content-type"] == "application/json"
    assert not world.engines[0].seen


@pytest.mark.parametrize("model", ["mock", "default/chat"])
async def test_a_compressed_body_reaches_the_engine_plain(world: World, proxies: list[Proxy], model: str) -> None:
    running = await world.ready(1)
    body = _chat(model=model)
    answer = await (await _proxy(running, proxies)).request(gzip.compress(body), headers={"content-encoding": "gzip"})
    assert answer.status == 200
    (seen,) = world.engines[0].seen
    assert seen["raw"] == body.replace(b'"default/chat"', b'"mock"')
    assert "content-encoding" not in seen["headers"]
    await _all_settled(running)
    assert running.router.body_memory.held == 0


@pytest.mark.parametrize(
    ("coding", "status", "code"), [("br", 415, "unsupported_content_encoding"), ("gzip", 400, "invalid_content_encoding")]
)
async def test_a_body_that_cannot_be_decoded_is_refused(world: World, proxies: list[Proxy], coding: str, status: int, code: str) -> None:
    running = await world.ready(1)
    answer = await (await _proxy(running, proxies)).request(_chat(), headers={"content-encoding": coding, "x-request-id": "mine"})
    assert (answer.status, _code(answer.body), answer.headers["x-request-id"]) == (status, code, "mine")
    assert running.router.body_memory.held == 0


async def test_a_body_for_which_there_is_no_memory_is_a_503(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(1)
    proxy, body = await _proxy(running, proxies), _chat("x" * 200_000)
    running.router.body_memory.most = len(body) - 1
    answer = await proxy.request(body)
    assert (answer.status, _code(answer.body), answer.headers["retry-after"]) == (503, "body_memory_full", "1")
    assert (await proxy.request(_chat())).status == 200
    await _all_settled(running)
    assert running.router.body_memory.held == 0


async def test_nobody_points_an_engine_at_a_peer_by_way_of_a_proxy(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(1)
    proxy = await _proxy(running, proxies)
    for body, headers in ((_chat(ec_transfer_params={"a": 1}), {}), (_chat(), {"x-request-id": "___decode_addr_10.0.0.1:80_1"})):
        answer = await proxy.request(body, headers=headers)
        assert (answer.status, _code(answer.body)) == (400, "invalid_field")
    assert not world.engines[0].seen


async def test_keys_are_asked_for_as_at_the_gateway(world: World, proxies: list[Proxy]) -> None:
    await world.start_engines(1)
    world.api.state.set_table(world.table())
    running = await world.start_router(gateway_keys=("a-key-of-sixteen-characters",))
    await until(lambda: running.router.informing.synced)
    proxy = await _proxy(running, proxies)
    assert (await proxy.request(_chat())).status == 401
    assert (await proxy.request(_chat(), headers={"authorization": "Bearer a-key-of-sixteen-characters"})).status == 200
    assert "authorization" not in world.engines[0].seen[0]["headers"]


async def test_a_body_that_does_not_come_is_a_408(world: World, proxies: list[Proxy]) -> None:
    await world.start_engines(1)
    world.api.state.set_table(world.table())
    running = await world.start_router(timeouts=Timeouts(body=0.2, shutdown=2.0))
    stream = (await _proxy(running, proxies)).open()
    await stream.say(request_headers())
    assert (await stream.hear()).immediate_response.status.code == 408


# ── the protocol ──


async def test_a_proxy_in_another_mode_is_told_so_by_the_status(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(1)
    stream = (await _proxy(running, proxies)).open()
    await stream.say(request_headers(modes=(2, 4)))
    code, details = await stream.status()
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert details.startswith("request_body_mode is BUFFERED; set request_body_mode")


async def test_messages_out_of_order_end_the_stream_with_a_status(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(1)
    proxy = await _proxy(running, proxies)
    stream = proxy.open()
    await stream.say(request_body(b"x", ended=True))
    assert (await stream.status())[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert (await proxy.request(_chat())).status == 200  # the connection goes on
    await _all_settled(running)


async def test_health_is_told_by_service(world: World, proxies: list[Proxy]) -> None:
    await world.api.stop()
    running = await world.start_router()
    proxy = await _proxy(running, proxies)
    check = proxy.channel.unary_unary("/grpc.health.v1.Health/Check")
    watch = proxy.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"\n\treadiness")
    serving, not_serving = b"\x08\x01", b"\x08\x02"
    assert await check(b"\n\x08liveness") == serving
    assert await check(b"") == not_serving
    assert await watch.read() == not_serving
    await world.api.start()
    assert await watch.read() == serving
    assert await check(b"\n\x2benvoy.service.ext_proc.v3.ExternalProcessor") == serving
    with pytest.raises(grpc.aio.AioRpcError) as unknown:
        await check(b"\n\x04none")
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_router_that_drains_lets_streams_end_and_takes_no_more(world: World, proxies: list[Proxy]) -> None:
    running = await world.ready(1, timeouts=Timeouts(shutdown=2 * PATIENCE_SECONDS))
    proxy = await _proxy(running, proxies)
    stream = proxy.open()
    await stream.say(request_headers(), request_body(_chat(stream=True), ended=True))
    await stream.hear()
    draining = asyncio.create_task(running.router.drain())
    await until(lambda: running.router.informing.refusing)
    await stream.say(response_headers(200, {"content-type": "text/event-stream"}), response_body(CONTENT, ended=True))
    said = [(await stream.hear()).WhichOneof("response") for _ in range(3)]
    assert Counter(said) == {"request_body": 1, "response_headers": 1, "response_body": 1}
    await stream.call.done_writing()
    assert await stream.hear() is None
    await draining
    assert running.pool.counters.served == 1


async def test_what_waits_for_an_instance_when_the_router_is_told_to_stop_still_gets_one(world: World, proxies: list[Proxy]) -> None:
    await world.start_engines(1)
    world.api.state.set_table(world.table())
    running = await world.start_router(timeouts=Timeouts(shutdown=2 * PATIENCE_SECONDS))
    await until(lambda: running.router.informing.synced)
    world.api.state.set_table(replace(world.table(version=2), instances=(), outlook=Outlook.COMING))
    await until(lambda: not running.pool.addresses)
    stream = (await _proxy(running, proxies)).open()
    await stream.say(request_headers(), request_body(_chat(), ended=True))
    await until(lambda: running.router.picker.active == 1)
    leaving = asyncio.create_task(running.router.let_go(running.server))
    await until(lambda: running.router.informing.draining)
    assert not running.router.informing.refusing
    world.api.state.set_table(world.table(version=3))
    assert [(await stream.hear()).WhichOneof("response") for _ in range(2)] == ["request_headers", "request_body"]
    await stream.say(response_headers(200, {}), response_body(b'{"choices": [{"text": "x"}]}', ended=True))
    assert [(await stream.hear()).WhichOneof("response") for _ in range(2)] == ["response_headers", "response_body"]
    await stream.call.done_writing()
    assert await stream.hear() is None
    await leaving
    assert running.pool.counters.served == 1


async def test_a_router_process_picks_over_tls_tells_health_without_and_drains_on_a_signal(world: World, tmp_path: Path) -> None:
    await world.start_engines(1)
    world.api.state.set_table(world.table())
    made = ensure_certificates(tmp_path / "tls", "127.0.0.1")
    picker, health = free_port(), free_port()
    environment = {
        **os.environ,
        "FAIRLEAD_API_URL": world.api.url,
        "FAIRLEAD_API_TOKEN": ROUTER_TOKEN,
        "FAIRLEAD_ROUTER_ID": "router-0",
        "FAIRLEAD_SPOOL_DIR": str(tmp_path / "spool"),
        "FAIRLEAD_PICKER_PORT": str(picker),
        "FAIRLEAD_PICKER_HEALTH_PORT": str(health),
        "FAIRLEAD_PICKER_TLS_CERT_FILE": str(made.certificate),
        "FAIRLEAD_PICKER_TLS_KEY_FILE": str(made.key),
    }
    command = (sys.executable, "-m", "fairlead_router.main", "--port", str(free_port()), "--admin-port", "0")
    process = await asyncio.create_subprocess_exec(*command, env=environment)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{health}") as channel:
            check, ready = channel.unary_unary("/grpc.health.v1.Health/Check"), b""
            async with asyncio.timeout(PATIENCE_SECONDS):
                while ready != b"\x08\x01":
                    ready = await check(b"\n\treadiness", wait_for_ready=True)
        async with Proxy(f"127.0.0.1:{picker}", root_certificate=made.authority.read_bytes()) as proxy:
            assert (await proxy.request(_chat())).served == world.engines[0].address
            stream = proxy.open()
            await stream.say(request_headers(), request_body(_chat(), ended=True))
            assert (await stream.hear()).WhichOneof("response") == "request_headers"
            process.send_signal(signal.SIGTERM)
            await stream.hear()
            await stream.say(response_headers(200, {}, ended=True))
            assert (await stream.hear()).WhichOneof("response") == "response_headers"
            await stream.call.done_writing()
            assert await stream.hear() is None
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
