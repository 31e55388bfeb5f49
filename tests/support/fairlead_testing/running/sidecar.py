"""A stand-in for the side-car that llm-d puts in front of each decode engine.

As llm-d's `connector_nixlv2.go` does, it asks the prefill instance in the header `x-prefiller-host-port` for one token,
and passes the resulting blocks to its engine. If the prefill engine refuses the request (4xx), its answer goes to the
client. After any other failure the decode engine computes the whole prompt.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx

from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import read_body

HEADER = "x-prefiller-host-port"
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
_ASKED = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None}
_NOT_PASSED = ("host", "content-length", "transfer-encoding", "connection")


class Sidecar:
    """A side-car in front of the engine at `engine` (host:port).

    `asked` has the prefill instance that each request named, or None if it named none.
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._client = httpx.AsyncClient(timeout=PATIENCE_SECONDS, trust_env=False)
        self._server: asyncio.Server | None = None
        self.asked: list[str | None] = []
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 24)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections from now on."""
        if self._server is not None:
            self._server.close()
        await self._client.aclose()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode("latin-1").split("\r\n")
                headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines if line)}
                body = await read_body(reader, headers)
                method, path, _ = first.split()
                await self._answer(method, path, headers, body, writer)
        except (ConnectionError, asyncio.IncompleteReadError, httpx.HTTPError):
            return
        finally:
            writer.close()

    async def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> None:
        sent = {name: value for name, value in headers.items() if name not in (*_NOT_PASSED, HEADER)}
        if method == "POST" and path in PATHS:
            prefill = headers.get(HEADER)
            self.asked.append(prefill)
            if prefill is not None:
                refused = await self._prefill(prefill, path, sent, document := json.loads(body))
                if refused is not None:
                    _write(writer, refused, refused.content)
                    return
                body = json.dumps(document).encode()
        async with self._client.stream(method, f"http://{self._engine}{path}", headers=sent, content=body) as answer:
            writer.write(_head(answer) + b"transfer-encoding: chunked\r\n\r\n")
            async for piece in answer.aiter_raw():
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
            writer.write(b"0\r\n\r\n")

    async def _prefill(self, prefill: str, path: str, headers: dict[str, str], document: dict[str, Any]) -> httpx.Response | None:
        """Put the blocks of the prefill into the document; return the engine's answer if it refused the request,
        otherwise None.
        """
        limits = ("max_output_tokens",) if path == "/v1/responses" else ("max_tokens", "max_completion_tokens")
        asked = {**document, "stream": False, "kv_transfer_params": _ASKED, **dict.fromkeys(limits, 1)}
        asked.pop("stream_options", None)
        try:
            answer = await self._client.post(f"http://{prefill}{path}", headers=headers, json=asked)
        except httpx.TransportError:
            return None
        if 400 <= answer.status_code < 452:
            return answer
        if answer.status_code == 200:
            document["kv_transfer_params"] = answer.json().get("kv_transfer_params")
        return None


def _head(answer: httpx.Response) -> bytes:
    kind = answer.headers.get("content-type", "application/json")
    return b"HTTP/1.1 %d X\r\ncontent-type: %b\r\n" % (answer.status_code, kind.encode())


def _write(writer: asyncio.StreamWriter, answer: httpx.Response, body: bytes) -> None:
    writer.write(_head(answer) + b"content-length: %d\r\n\r\n%b" % (len(body), body))
