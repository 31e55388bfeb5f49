"""Compressed and large bodies through a real router: the engine's bytes, and the router's memory and disk
afterwards.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import zlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BODY = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}).encode()
PATHS = {
    "/v1/chat/completions": BODY,
    "/v1/messages": BODY,
    "/v1/responses": b'{"model": "mock", "input": "hello"}',
    "/tokenize": b'{"model":"mock"}',
}


async def _ready(world: World, **settings: Any) -> RunningRouter:
    await world.start_engines(1)
    world.api.state.set_table(world.table())
    running = await world.start_router(**settings)
    await until(lambda: running.router.informing.synced)
    return running


async def _all_given_back(running: RunningRouter) -> None:
    await until(lambda: running.busy() == 0 and running.router.body_memory.held == 0)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("coding", "encode"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("GZIP", gzip.compress),
        ("deflate", zlib.compress),
        ("Zstd", zstd.compress),
        ("deflate, gzip", lambda body: gzip.compress(zlib.compress(body))),
        ("identity", bytes),
    ],
)
async def test_an_engine_gets_a_compressed_body_decoded(world: World, path: str, coding: str, encode: Any) -> None:
    running = await world.ready(count=1)
    answer = await running.client.post(path, content=encode(PATHS[path]), headers={"content-encoding": coding})
    assert answer.status_code == 200
    (seen,) = world.engines[0].seen
    assert (seen["raw"], seen["headers"]["content-length"]) == (PATHS[path], str(len(PATHS[path])))
    assert "content-encoding" not in seen["headers"]
    await _all_given_back(running)


async def test_a_compressed_form_is_decoded_as_it_passes(world: World) -> None:
    running = await world.ready(count=1)
    plain = httpx.Request("POST", "http://x", data={"model": "default/chat"}, files={"file": ("a", b"sound" * 100_000, "audio/wav")})
    form = plain.read()
    headers = {"content-type": plain.headers["content-type"], "content-encoding": "gzip"}
    answer = await running.client.post("/v1/audio/transcriptions", content=gzip.compress(form), headers=headers)
    assert answer.status_code == 200
    assert world.engines[0].seen[0]["raw"] == form.replace(b"default/chat", b"mock")
    await _all_given_back(running)


@pytest.mark.parametrize(("coding", "encode"), [("gzip", gzip.compress), ("ZSTD", zstd.compress)])
@pytest.mark.parametrize("first", ["model", "file"])
async def test_a_form_that_decodes_to_too_much_is_refused_wherever_its_model_is(world: World, coding: str, encode: Any, first: str) -> None:
    running = await _ready(world, max_body_bytes=1_000_000, max_upload_bytes=3_000_000)
    parts = {"model": b"mock", "file": bytes(50_000_000)}
    names = sorted(parts, key=lambda name: name != first)
    form = b"".join(b'--x\r\ncontent-disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (name.encode(), parts[name]) for name in names)
    headers = {"content-type": "multipart/form-data; boundary=x", "content-encoding": coding}
    answer = await running.client.post("/v1/audio/transcriptions", content=encode(form + b"--x--\r\n"), headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (
        (413, "request_too_large") if first == "model" else (400, "missing_field")
    )
    await _all_given_back(running)
    direct = running.router.pools.all()[0].counters.direct
    assert direct == ({"refused": 1} if first == "model" else {})
    assert (await running.ask()).status_code == 200


@pytest.mark.parametrize(
    ("content", "coding", "status", "code"),
    [
        (BODY, "zstd", 400, "invalid_content_encoding"),
        (BODY, "br", 415, "unsupported_content_encoding"),
        (BODY, "gzip", 400, "invalid_content_encoding"),
        (gzip.compress(BODY, mtime=0)[:-5], "gzip", 400, "invalid_content_encoding"),
        (gzip.compress(b"{", mtime=0), "gzip", 400, "invalid_json"),
        (gzip.compress(bytes(3_000_000), mtime=0), "gzip", 413, "request_too_large"),
    ],
    ids=["zstd", "br", "plain", "cut", "json", "bomb"],
)
async def test_a_body_that_cannot_be_decoded_is_told_why(world: World, content: bytes, coding: str, status: int, code: str) -> None:
    running = await _ready(world, max_body_bytes=2_000_000)
    answer = await running.client.post("/v1/chat/completions", content=content, headers={"content-encoding": coding})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    if status == 415:
        assert answer.headers["accept-encoding"] == "gzip, deflate, zstd, identity"
    assert not world.engines[0].seen
    await _all_given_back(running)


async def test_a_photo_of_20_mib_reaches_the_engine_by_default(world: World) -> None:
    running = await world.ready(count=1)
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 20_000_000}}
    body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": [part]}]}).encode()
    assert (await running.client.post("/v1/chat/completions", content=body)).status_code == 200
    assert world.engines[0].seen[0]["size"] == len(body)


async def test_bodies_beyond_the_memory_for_all_of_them_are_refused_and_nothing_of_any_is_kept(world: World) -> None:
    running = await _ready(world, max_body_bytes=100_000, max_upload_bytes=100_000, body_memory_bytes=150_000)
    body = BODY + b" " * 90_000
    begun = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield body
        begun.set()
        await asyncio.Event().wait()

    first = asyncio.create_task(running.client.post("/v1/chat/completions", content=slow()))
    await until(lambda: running.router.body_memory.held >= 90_000)
    for path, headers in (("/v1/chat/completions", {}), ("/v1/messages", {"content-encoding": "gzip"}), ("/tokenize", {})):
        answer = await running.client.post(path, content=gzip.compress(body) if headers else body, headers=headers)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "FAIRLEAD_BODY_MEMORY_BYTES" in answer.text
    assert (await running.ask()).status_code == 200, "small ones find room"
    first.cancel()
    await _all_given_back(running)
    assert (await running.client.post("/v1/chat/completions", content=body)).status_code == 200
    assert running.router.metrics.client_errors["body_memory_full"] == 3


async def test_no_way_to_end_keeps_memory(world: World) -> None:
    running = await _ready(world, max_body_bytes=100_000, max_upload_bytes=100_000)
    world.engines[0].broken = True
    filled = BODY + b" " * 50_000
    assert (await running.client.post("/v1/chat/completions", content=filled)).status_code == 502
    world.engines[0].broken = False
    for content in (b"{" + filled, b" " * 200_000, filled.replace(b"mock", b"none")):
        assert (await running.client.post("/v1/chat/completions", content=content)).status_code in (400, 404, 413)
    for path in ("/nothing", "/v1/models", "/health"):
        assert (await running.client.post(path, content=filled)).status_code in (404, 405)
    form = {"file": ("a", b"x" * 50_000, "audio/wav")}
    assert (await running.client.post("/v1/audio/transcriptions", files=form, data={"model": "none"})).status_code == 404
    for sent in (b"", filled[:40_000], filled):
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-script: silent\r\ncontent-length: %d\r\n\r\n" % len(filled) + sent
        )
        await writer.drain()
        await asyncio.sleep(0)
        writer.transport.abort()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await _all_given_back(running)
