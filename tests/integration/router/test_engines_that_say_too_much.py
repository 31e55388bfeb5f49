"""A real router in front of engines that report impossible values: these are ignored and reported, without other
effect.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from fairlead.plausibility import HEAD_BYTES, MOST_SOURCES
from fairlead.reports.engines import EngineTrouble
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

HUGE = b'vllm:cache_config_info{block_size="999999999999999",num_gpu_blocks="999999999999999"} 1\nvllm:kv_cache_usage_perc 0.5\n'
DEEP = b'{"data":[{"id":"mock","x":' + b"[" * 250 + b"]" * 250 + b"}]}"
PAGES = {
    "/metrics of a size that no engine has": {"/metrics": HUGE},
    "/metrics in one line": {"/metrics": b"vllm:kv_cache_usage_perc" * 40_000},
    "/metrics without an end": {"/metrics": b"x" * 5_000_000},
    "deep models": {"/v1/models": DEEP},
    "deeper models": {"/v1/models": DEEP.replace(b"[" * 250, b"[" * 100_000)},
    "very many models": {"/v1/models": b'{"data":[' + b'{"id":"a"},' * 50_000 + b'{"id":"mock"}]}'},
    "very many sources": {"/kv_event_sources": json.dumps([{"endpoint": f"tcp://*:{n + 1}"} for n in range(20_000)]).encode()},
    "deep sources": {"/kv_event_sources": b'[{"endpoint":"tcp://*:1","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}]"},
    "another's sources": {"/kv_event_sources": b'[{"endpoint":"tcp://127.0.0.9:9","replay_endpoint":"tcp://169.254.169.254:80"}]'},
}


async def _raw(running: RunningRouter, path: str, *, stream: bool) -> bytes:
    """Return all bytes of a connection with two requests; the second has an answer of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "x"}], "stream": stream}).encode()
    head = "POST %s HTTP/1.1\r\nhost: x\r\nx-script: %s\r\ncontent-length: %d\r\n%s\r\n"
    writer.write((head % (path, "raw", len(body), "")).encode() + body)
    first = await reader.readuntil(b"\r\n\r\n")
    writer.write((head % (path, "", len(body), "connection: close\r\n")).encode() + body)
    rest = await reader.read()
    writer.close()
    return first + b"|" + rest


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_that_cannot_be_true_costs_neither_its_pool_nor_the_operators_theirs(world: World, name: str) -> None:
    await world.start_engines(2)
    world.engines[0].pages.update(PAGES[name])
    world.api.state.set_table(world.table())
    running = await world.start_router()
    await until(lambda: bool(running.router.pools.all()) and "i1" in running.pool.engines.pages)
    for _ in range(2):
        await running.router.scraper.scrape()
        await running.router.kv_events.follow()
    assert (await running.ask()).status_code == 200
    told = json.loads((await running.admin.get("/debug/pools")).content)
    assert [pool["table"]["model"] for pool in told["pools"]] == ["mock"]
    assert "fairlead_router_kv_usage" in (await running.admin.get("/metrics")).text
    assert [card["id"] for card in (await running.client.get("/v1/models")).json()["data"]]
    assert running.pool.engines.cache_tokens is None
    assert len(running.router.kv_events.readings().get(("default/chat", "i0"), ())) <= MOST_SOURCES
    assert running.pool.engines.troubles["i1"] == {}
    assert running.router.delivery._state() is not None


@pytest.mark.parametrize(
    "name", ["/metrics of a size that no engine has", "/metrics without an end", "very many models", "very many sources"]
)
async def test_what_cannot_be_true_is_a_trouble_of_its_engine_until_it_says_something_else(world: World, name: str) -> None:
    await world.start_engines(1)
    engine = world.engines[0]
    engine.pages.update(PAGES[name])
    world.api.state.set_table(world.table())
    running = await world.start_router()
    await until(lambda: bool(running.router.pools.all()))
    await until(lambda: EngineTrouble.REPORTS_IMPLAUSIBLE in running.pool.engines.troubles["i0"])
    words = running.pool.engines.troubles["i0"][EngineTrouble.REPORTS_IMPLAUSIBLE]
    assert engine.address not in words and len(words) < 1000
    engine.pages.clear()
    running.pool.engines.forget_implausible(running.router.now() + 1000.0)
    assert EngineTrouble.REPORTS_IMPLAUSIBLE not in running.pool.engines.troubles["i0"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\ncontent-type: application/json\r\ncontent-length: 20\r\n\r\n",
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_without_a_body_leaves_nothing_that_reads_as_the_next_answer(
    world: World, path: str, raw: bytes, *, stream: bool
) -> None:
    running = await world.ready(count=1)
    world.engines[0].raw = raw
    first, _, rest = (await _raw(running, path, stream=stream)).partition(b"|")
    if b" 204 " in first:
        assert b"transfer-encoding" not in first and b"content-length" not in first
        assert rest.startswith(b"HTTP/1.1 200 ")
    else:
        assert first.startswith(b"HTTP/1.1 502 ") and b"HTTP/1.1 200 " in rest


LONG = b"HTTP/1.1 200 OK\r\nx-a: %s\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}" % (b"a" * (HEAD_BYTES + 1))


@pytest.mark.parametrize("raw", [LONG, b"HTTP/1.1 200 OK\r\n" + b"x-a: 1\r\n" * 2000 + b"content-length: 2\r\n\r\n{}"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
async def test_a_head_that_is_too_large_reaches_no_client_and_is_a_trouble_of_its_engine(world: World, raw: bytes, path: str) -> None:
    running = await world.ready(count=2)
    for engine in world.engines:
        engine.raw = raw
    document = {"model": "mock", "messages": [{"role": "user", "content": "x"}]}
    answer = await running.client.post(path, json=document, headers={"x-script": "raw"})
    assert answer.status_code == 502 and len(str(answer.headers)) < 5000
    assert any(EngineTrouble.REPORTS_IMPLAUSIBLE in troubles for troubles in running.pool.engines.troubles.values())


BROWSERS = {
    "refresh": "0;url=http://evil", "strict-transport-security": "max-age=1", "access-control-allow-origin": "*", "link": "</x>; rel=preload",
    "content-location": "/x", "www-authenticate": "Basic", "x-request-id": "engine's", "set-cookie": "a=b", "clear-site-data": '"*"',
    "alt-svc": 'h3=":443"', "location": "/x", "content-security-policy": "x", "permissions-policy": "x", "referrer-policy": "x",
    "report-to": "{}", "nel": "{}", "reporting-endpoints": "a=b", "service-worker-allowed": "/", "sourcemap": "/x", "x-sourcemap": "/x",
    "speculation-rules": '"/x"', "no-vary-search": "params", "cross-origin-opener-policy": "x", "cross-origin-resource-policy": "cross-origin",
    "timing-allow-origin": "*", "origin-agent-cluster": "?1", "accept-ch": "x", "critical-ch": "x", "public-key-pins": "x", "expect-ct": "x",
    "x-frame-options": "ALLOWALL", "x-xss-protection": "0", "x-accel-redirect": "/etc", "x-sendfile": "/etc", "x-fairlead-pool": "evil",
    "authentication-info": "x", "set-login": "logged-in", "observe-browsing-topics": "?1", "attribution-reporting-register-source": "{}",
    "supports-loading-mode": "x", "upgrade": "h2c", "trailer": "x", "x-forwarded-for": "1.2.3.4", "unknown-of-a-later-browser": "x",
}  # fmt: skip
PASSED = {
    "x-engine": "1",
    "openai-processing-ms": "5",
    "cache-control": "no-store",
    "ratelimit-remaining": "7",
    "etag": '"x"',
    "server-timing": "a",
    "metadata": '{"data":[{"shape":[2],"start":0,"end":8}],"usage":{"prompt_tokens":7}}',
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
async def test_no_header_of_an_engine_changes_what_a_browser_does_beyond_its_answer(world: World, path: str) -> None:
    running = await world.ready(count=1)
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**BROWSERS, **PASSED}.items()).encode()
    body = b'{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}'
    world.engines[0].raw = b"HTTP/1.1 200 OK\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (lines, len(body), body)
    document = {"model": "mock", "messages": [{"role": "user", "content": "x"}]}
    answer = await running.client.post(path, json=document, headers={"x-script": "raw"})
    assert answer.status_code == 200
    assert {name for name, value in BROWSERS.items() if answer.headers.get(name) == value} == set()
    assert {name: answer.headers.get(name) for name in PASSED} == PASSED


@pytest.mark.parametrize(
    "error",
    [
        b'{"error":{"message":"\\ud800 half of a pair"}}',
        b'{"error":' * 900 + b"1" + b"}" * 900,
        b'{"object":"error","message":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"error":{"message":' + b"9" * 4000 + b"}}",
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_that_cannot_be_written_as_it_came_is_still_an_answer(world: World, error: bytes, *, stream: bool) -> None:
    running = await world.ready(count=1)
    kind, body = (b"text/event-stream", b"data: " + error + b"\n\n") if stream else (b"application/json", error)
    world.engines[0].raw = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (kind, len(body), body)
    answer = await running.ask(stream=stream, script="raw")
    assert answer.status_code == 502 and answer.json()["error"]["message"]
    assert running.busy() == 0 and (await running.ask()).status_code == 200


@pytest.mark.parametrize(
    "date", ["Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "9" * 40_000, "Mon, 01 Jan 2020 00:00:00 +99999999999999"]
)
async def test_an_engine_that_is_busy_until_a_time_that_cannot_be_is_busy(world: World, date: str) -> None:
    running = await world.ready(count=1)
    world.engines[0].raw = f"HTTP/1.1 429 Too Many\r\nretry-after: {date}\r\ndate: {date}\r\ncontent-length: 2\r\n\r\n{{}}".encode()
    answer = await running.ask(script="raw")
    assert answer.status_code in (429, 502, 503)
    assert 0 <= int(answer.headers.get("retry-after", "0")) <= 600
