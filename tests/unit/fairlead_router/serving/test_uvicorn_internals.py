"""Internals of uvicorn on which the router relies.

When a test here fails after an upgrade, `client_connections` or `client_requests` must be adapted.
"""

from __future__ import annotations

import asyncio
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

HEAD = b"POST /v1 HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n"


class RecordingTransport(asyncio.Transport):
    """A transport that keeps all bytes written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False
        self.reading = True

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Applied:
    """An application that records the scopes it was called with, and never answers."""

    def __init__(self) -> None:
        self.scopes: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        await asyncio.Event().wait()


def connection(app: Applied) -> tuple[HttpToolsProtocol, RecordingTransport]:
    config = uvicorn.Config(app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False)
    protocol = HttpToolsProtocol(config, ServerState(), {})
    transport = RecordingTransport()
    protocol.connection_made(transport)
    return protocol, transport


def test_the_installed_uvicorn_is_one_that_the_bound_of_the_router_allows() -> None:
    root = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = (one for one in extras["router"] if one.startswith("uvicorn"))
    least, below = wanted.removeprefix("uvicorn>=").split(",<")
    parts = [tuple(int(part) for part in text.split(".")[:2]) for text in (least, version("uvicorn"), below)]
    assert parts[0] <= parts[1] < parts[2]


async def test_the_application_starts_only_after_the_headers_were_handled_so_that_its_scope_can_be_extended() -> None:
    app = Applied()
    protocol, _ = connection(app)
    protocol.data_received(HEAD)
    assert app.scopes == []
    protocol.scope["extensions"] = {"fairlead.client": {}}
    await asyncio.sleep(0)
    assert app.scopes == [protocol.cycle.scope]
    assert "fairlead.client" in app.scopes[0]["extensions"]
    assert app.scopes[0]["raw_path"] == b"/v1"


async def test_a_request_keeps_its_state_where_the_router_reads_and_writes_it() -> None:
    protocol, _ = connection(Applied())
    protocol.data_received(HEAD.replace(b"\r\n\r\n", b"\r\nexpect: 100-continue\r\n\r\n"))
    cycle = protocol.cycle
    assert (cycle.response_started, cycle.response_complete, cycle.disconnected) == (False, False, False)
    assert (cycle.keep_alive, cycle.waiting_for_100_continue) == (True, True)
    assert not cycle.message_event.is_set()
    assert protocol.flow.write_paused is False
    assert protocol.server_state.default_headers == []
    assert (protocol.connections, len(protocol.pipeline)) == ({protocol}, 0)


async def test_answering_past_asgi_starts_the_next_request_of_a_pipeline_and_then_the_timer_of_an_idle_connection() -> None:
    app = Applied()
    protocol, transport = connection(app)
    protocol.data_received(HEAD + b"hi" + HEAD)
    assert len(protocol.pipeline) == 1
    assert not transport.reading
    first = protocol.pipeline[0][0]
    assert first is protocol.cycle
    await asyncio.sleep(0)
    assert len(app.scopes) == 1
    protocol.on_response_complete()
    await asyncio.sleep(0)
    assert len(app.scopes) == 2
    assert protocol.timeout_keep_alive_task is None
    protocol.cycle.response_complete = True
    protocol.cycle.on_response()
    assert protocol.timeout_keep_alive_task is not None
    protocol._unset_keepalive_if_required()
    assert protocol.timeout_keep_alive_task is None


async def test_the_callbacks_that_the_router_overrides_are_those_that_the_parser_calls() -> None:
    called = []

    class Noting(HttpToolsProtocol):
        def __getattribute__(self, name: str) -> Any:
            if name.startswith(("on_", "send_400")):
                called.append(name)
            return super().__getattribute__(name)

    config = uvicorn.Config(Applied(), http="httptools", ws="none", lifespan="off", log_config=None, access_log=False)
    protocol = Noting(config, ServerState(), {})
    protocol.connection_made(RecordingTransport())
    protocol.data_received(HEAD + b"hi")
    protocol.data_received(b"nonsense\r\n\r\n")
    wanted = {"on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body", "on_message_complete", "send_400_response"}
    assert wanted <= set(called)
