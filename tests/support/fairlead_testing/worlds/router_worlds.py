"""Worlds for tests of routers.

A router runs in this process behind a real server, with a fake control API over HTTP and engines that behave as a
request's header says.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx

from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import RoutingTable
from fairlead_process.starting import bind
from fairlead_router.admin import AdminApp
from fairlead_router.main import Router, pool_scheduler_factory
from fairlead_router.pools.pool import Pool
from fairlead_router.relaying.calls import JUST_SENT_SECONDS
from fairlead_router.serving.http_server import GatewayServer, server_config
from fairlead_router.settings import RouterSettings, Timeouts
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.fakes.system_api import ROUTER_TOKEN, FakeSystemApi
from fairlead_testing.waiting import PATIENCE_SECONDS

_NUMBERS = itertools.count()
"""Numbers for the requests that engines get, in order of arrival at any engine."""

CHUNK = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "tok "}}]}
USAGE = {"prompt_tokens": 8, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}


async def until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until the condition is true; raises TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    """Return the body of a request with these headers."""
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:size]
    await reader.readline()
    return body


@dataclass
class ScriptedEngine:
    """An HTTP engine over a plain socket.

    The request header `x-script` selects its behaviour; `seen` has the requests that it got.
    """

    name: str
    seen: list[dict[str, Any]] = field(default_factory=list)
    broken: bool = False
    """Whether it answers 500 to all requests."""
    models: list[str] = field(default_factory=list)
    """The models that it lists and serves. If empty, it lists none and serves all."""
    refuses: int = 0
    """The 4xx status of its answers to all requests; 0 if it refuses none."""
    hands_on: bool = True
    """Whether it reports where the KV blocks of a prefill are if the request asks for that."""
    fetches: str = ""
    """The fate of a request that names another engine's blocks: `silence`, `loss`, `error`; "" if it is answered."""
    step: asyncio.Event = field(default_factory=asyncio.Event)
    """The event for which `stepwise` streams wait before every chunk except the first."""
    early_answer: bytes = b""
    """The answer to a POST after a thousand bytes of its body; `cut_short` has the request lines of such POSTs."""
    cut_short: list[str] = field(default_factory=list)
    raw: bytes = b""
    """The bytes with which the script `raw` answers."""
    hangs_up_after_raw: bool = False
    """Whether it breaks the connection after `raw`."""
    held: dict[str, Any] | None = None
    """The stored response that it returns for every response id; None if it returns its own responses."""
    events: list[str] = field(default_factory=list)
    """The events of its streams, instead of chunks of a chat.

    With `stepwise_events`, every event except the first waits for `step`.
    """
    stepwise_events: bool = False
    cards: list[Any] = field(default_factory=list)
    """The entries of its list of models; if empty, it has no list."""
    hang_up_after_events: bool = False
    pages: dict[str, bytes] = field(default_factory=dict)
    """Its answers to a GET, by path."""
    disconnects: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 24)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse new connections and cut the open ones."""
        if self._server is not None:
            self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
                if self.early_answer and head[0].startswith("POST"):
                    await reader.readexactly(1000)
                    writer.write(self.early_answer)
                    self.cut_short.append(head[0])
                    await reader.read()
                    return
                body = await read_body(reader, headers)
                if any(line.startswith(":") for line in head[1:]):  # no header's name, so servers refuse it
                    self._write(writer, 400, b'{"error": {"message": "invalid header"}}')
                    continue
                if head[0].startswith("GET ") and (page := self.pages.get(head[0].split(" ")[1])) is not None:
                    self._write(writer, 200, page)
                    continue
                if head[0].startswith("GET /metrics"):
                    self._write(writer, 200, b"vllm:kv_cache_usage_perc 0.5\n")
                    continue
                if head[0].startswith("GET /v1/models ") and self.cards:
                    self._write(writer, 200, json.dumps({"object": "list", "data": self.cards}).encode())
                    continue
                if self.models and head[0].startswith("GET /v1/models"):
                    listed = {"object": "list", "data": [{"id": name, "owned_by": "vllm"} for name in self.models]}
                    self._write(writer, 200, json.dumps(listed).encode())
                    continue
                if head[0].startswith(("GET /kv_event_sources", "GET /v1/models")):
                    self._write(writer, 404, b'{"error": {"message": "not found"}}')
                    continue
                is_form = headers.get("content-type", "").startswith("multipart/")
                document = json.loads(body) if body and not is_form else {}
                self.seen.append(
                    {"line": head[0], "headers": headers, "body": document, "size": len(body), "raw": body, "number": next(_NUMBERS)}
                )
                if "/v1/responses/" in head[0]:
                    self._answer_held(head[0], writer)
                    continue
                await self._answer(headers.get("x-script", ""), document, writer, reader)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer_held(self, line: str, writer: asyncio.StreamWriter) -> None:
        """Answer a request for a stored response. Each engine stores only its own: `i0` has the responses that end in
        `-i0`.
        """
        response = line.split()[1].removeprefix("/v1/responses/").removesuffix("/cancel").partition("?")[0]
        if self.held is not None:
            self._write(writer, 200, json.dumps(self.held).encode())
        elif response.endswith(f"-{self.name}"):
            self._write(writer, 200, json.dumps({"id": response, "engine": self.name, "line": line}).encode())
        else:
            self._write(writer, 404, b'{"error": {"message": "not found"}}')

    def _blocks(self, document: dict[str, Any]) -> dict[str, Any] | None:
        """Return the location of this prefill's KV blocks; None if the request does not ask for it."""
        if not self.hands_on or not (document.get("kv_transfer_params") or {}).get("do_remote_decode"):
            return None
        return {
            "do_remote_prefill": True,
            "remote_engine_id": self.name,
            "remote_request_id": f"cmpl-{len(self.seen)}",
            "remote_port": 5600,
            "remote_num_tokens": 4000,
        }

    def _write(self, writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
        writer.write(b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))

    async def _answer(self, script: str, document: dict[str, Any], writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        only = script.partition("@")[2]
        if only and only != self.name:
            script = ""
        script = script.partition("@")[0]
        if self.refuses:
            self._write(writer, self.refuses, b'{"error": {"message": "not here"}}')
        elif self.models and document.get("model") not in self.models:
            error = {"message": f"The model `{document.get('model')}` does not exist.", "type": "NotFoundError", "code": 404}
            self._write(writer, 404, json.dumps({"error": error}).encode())
        elif self.fetches and (document.get("kv_transfer_params") or {}).get("do_remote_prefill"):
            await self._fail_to_fetch(writer, reader)
        elif self.broken or script == "error-500":
            self._write(writer, 500, b'{"error": "broken"}')
        elif script == "busy":
            self._write(writer, 503, b'{"error": "busy"}')
        elif script == "bad-request":
            self._write(writer, 400, b'{"error": "context too long"}')
        elif script == "hang-up":
            raise ConnectionResetError
        elif script == "die":
            await asyncio.sleep(JUST_SENT_SECONDS + 0.5)  # it computed for a while
            await self.stop()
        elif script == "silent":
            await self._watch(reader)
        elif script == "raw":
            writer.write(self.raw)
            if self.hangs_up_after_raw:
                await writer.drain()
                raise ConnectionResetError
        elif not document.get("stream"):
            whole = json.dumps(
                {
                    "id": f"resp_{len(self.seen)}-{self.name}",
                    "model": document.get("model"),
                    "engine": self.name,
                    "choices": [{"index": 0, "message": {"role": "assistant", "content": "tok"}, "text": "tok", "finish_reason": "length"}],
                    "usage": USAGE,
                    "kv_transfer_params": self._blocks(document),
                }
            ).encode()
            if script == "die-halfway":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(whole), whole[:20]))
                await writer.drain()
                raise ConnectionResetError
            self._write(writer, 200, whole)
        else:
            await self._stream(script, document, writer, reader)
        await writer.drain()

    async def _fail_to_fetch(self, writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        if self.fetches == "loss":
            raise ConnectionResetError
        if self.fetches == "silence":
            await self._watch(reader)
        self._write(writer, 500, b'{"error": {"message": "KV load failed"}}')

    async def _stream(self, script: str, document: dict[str, Any], writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        def send(data: bytes) -> None:
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))

        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        if self.events:
            await self._tell_events(send, writer)
            return
        event = b"data: " + json.dumps({**CHUNK, "engine": self.name}).encode() + b"\n\n"
        if script == "flood":
            piece = event * 500
            for _ in range(400):
                send(piece)
                await writer.drain()
        gone = asyncio.create_task(self._watch(reader)) if script == "stepwise" else None
        made = int(document.get("max_tokens", 3))
        for number in range(made):
            if script == "stepwise" and number:
                waiting = asyncio.create_task(self.step.wait())
                assert gone is not None
                await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if gone.done():
                    raise ConnectionResetError
                self.step.clear()
            if script == "die-mid-stream" and number == 2:
                writer.write(b"%x\r\n%s" % (len(event), event[:30]))
                await writer.drain()
                raise ConnectionResetError
            send(event)
            await writer.drain()
        if gone is not None:
            gone.cancel()
        if document.get("stream_options", {}).get("include_usage"):
            send(b"data: " + json.dumps({**CHUNK, "choices": [], "usage": {**USAGE, "completion_tokens": made}}).encode() + b"\n\n")
        send(b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")

    async def _tell_events(self, send: Callable[[bytes], None], writer: asyncio.StreamWriter) -> None:
        for number, event in enumerate(self.events):
            if self.stepwise_events and number:
                await self.step.wait()
                self.step.clear()
            send(event.encode())
            await writer.drain()
        if self.hang_up_after_events:
            raise ConnectionResetError
        writer.write(b"0\r\n\r\n")

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        await reader.read(1)
        self.disconnects += 1


@dataclass
class RunningRouter:
    """A router that serves, and a client for it."""

    router: Router
    server: GatewayServer
    listener: socket.socket
    port: int
    client: httpx.AsyncClient
    served: asyncio.Task[None]
    admin: httpx.AsyncClient
    """A client for the operators' port."""

    @property
    def pool(self) -> Pool:
        return self.router.pools.all()[0]

    @property
    def scheduler(self) -> PoolScheduler:
        scheduler = self.pool.scheduler
        assert isinstance(scheduler, PoolScheduler)
        return scheduler

    def busy(self) -> int:
        """Return the number of requests that any account of the router still counts."""
        pools = tuple(self.router.pools.living())
        counted = sum(row.in_flight + row.waiting for pool in pools for row in pool.scheduler.in_flight())
        return counted + sum(len(pool.account.tickets) for pool in pools) + self.router.calls.active()

    async def ask(self, *, stream: bool = False, script: str = "", text: str = "hello", **more: Any) -> httpx.Response:
        headers = {"x-script": script, **more.pop("headers", {})}
        document = {"model": "mock", "messages": [{"role": "user", "content": text}], "max_tokens": 3, "stream": stream, **more}
        return await self.client.post("/v1/chat/completions", json=document, headers=headers)


@dataclass
class World:
    """The world of a test: it starts engines and routers on demand, and stops all of them at the end."""

    api: FakeSystemApi
    directory: Path
    engines: list[ScriptedEngine] = field(default_factory=list)
    routers: list[RunningRouter] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    """The ids of decisions that clients received."""

    async def start_engines(self, count: int) -> list[ScriptedEngine]:
        for _ in range(count):
            engine = ScriptedEngine(name=f"i{len(self.engines)}")
            await engine.start()
            self.engines.append(engine)
        return self.engines

    def table(self, **named: Any) -> RoutingTable:
        return routing_table([engine.address for engine in self.engines], **named)

    def settings(self, name: str = "router-0", **changes: Any) -> RouterSettings:
        patient = Timeouts(
            connect=PATIENCE_SECONDS, first_byte=PATIENCE_SECONDS, total=2 * PATIENCE_SECONDS, body=PATIENCE_SECONDS, shutdown=5.0
        )
        timeouts = changes.pop("timeouts", patient)
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        return RouterSettings(
            api_urls=(self.api.url,), api_token=ROUTER_TOKEN, router_id=name, spool_dir=directory, timeouts=timeouts, **changes
        )

    async def start_router(self, name: str = "router-0", seed: int = 1, **changes: Any) -> RunningRouter:
        settings = self.settings(name, **changes)
        router = Router(settings, pool_scheduler_factory(name, seed, 1.0, settings.max_retries), f"start{seed}")
        router.recall()
        listener = bind("--port", "127.0.0.1", 0)
        port = listener.getsockname()[1]
        server = GatewayServer(server_config(router.gateway, router.connection_limits()), asyncio.get_running_loop(), lambda: None)
        router.start()
        served = asyncio.create_task(server.serve(sockets=[listener]))
        client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS, trust_env=False, verify=False)
        admin = httpx.AsyncClient(transport=httpx.ASGITransport(cast(Any, AdminApp(router.informing))), base_url="http://admin")
        running = RunningRouter(router=router, server=server, listener=listener, port=port, client=client, served=served, admin=admin)
        self.routers.append(running)
        await until(lambda: server.started)
        return running

    async def stop_router(self, running: RunningRouter) -> None:
        """Stop a router as a signal does: it drains, stops serving, sends its last reports and says goodbye."""
        self.routers.remove(running)
        await running.client.aclose()
        await running.admin.aclose()
        await running.router.drain()
        running.server.should_exit = True
        await running.served
        await running.router.stop()

    async def ready(self, count: int = 2, timeouts: Timeouts | None = None, **table: Any) -> RunningRouter:
        """Start engines, set a table of them, and return a router that has the table."""
        await self.start_engines(count)
        self.api.state.set_table(self.table(**table))
        running = await (self.start_router() if timeouts is None else self.start_router(timeouts=timeouts))
        await until(lambda: running.router.informing.synced)
        return running
