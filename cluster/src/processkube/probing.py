"""Probes servers with one connection or one GET request. This is cheaper than a client library, which matters because a
kubelet probes 64 instances every second.

Each probe opens a new connection.
"""

import asyncio
import contextlib
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """The result of a probe: whether the server is healthy and, if not, an explanation for people."""

    ok: bool
    detail: str = ""


async def ask_http(
    host: str, port: int, path: str, *, timeout_seconds: float, headers: tuple[tuple[str, str], ...] = (), tls: bool = False
) -> ProbeAnswer:
    """Probe a server by a GET request for `path`. A status from 200 to 399 means that it is healthy. Never raises,
    whatever the server does.

    With `tls` any certificate is accepted, as by a real kubelet.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            status = await _status_of(host, port, path, headers, _any_certificate() if tls else None)
    except TimeoutError:
        return ProbeAnswer(ok=False, detail=f"no answer from {host}:{port}{path} within {timeout_seconds:g} s")
    except OSError as problem:
        return ProbeAnswer(ok=False, detail=f"{host}:{port} {(problem.strerror or str(problem)).lower()}")
    except (ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return ProbeAnswer(ok=False, detail=f"{host}:{port}{path} did not answer in HTTP")
    return ProbeAnswer(ok=200 <= status < 400, detail=f"{path} answered {status}")


async def ask_url(url: str, *, timeout_seconds: float) -> ProbeAnswer:
    """Probe the server at an `http://` URL by `ask_http`."""
    parts = urlsplit(url)
    return await ask_http(parts.hostname or "127.0.0.1", parts.port or 80, parts.path or "/", timeout_seconds=timeout_seconds)


async def ask_tcp(host: str, port: int, *, timeout_seconds: float) -> ProbeAnswer:
    """Probe a server by a TCP connection. It is healthy if the port accepts the connection."""
    try:
        async with asyncio.timeout(timeout_seconds):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return ProbeAnswer(ok=False, detail=f"no connection to {host}:{port} within {timeout_seconds:g} s")
    except OSError as problem:
        return ProbeAnswer(ok=False, detail=f"{host}:{port} {(problem.strerror or str(problem)).lower()}")
    await _close(writer)
    return ProbeAnswer(ok=True)


def _any_certificate() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _status_of(host: str, port: int, path: str, headers: tuple[tuple[str, str], ...], tls: ssl.SSLContext | None) -> int:
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}:{port}", "User-Agent: processkube-probe", "Accept: */*", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        await writer.drain()
        first = (await reader.readuntil(b"\r\n")).decode("latin-1").split(" ", 2)
        if len(first) < 2 or not first[0].startswith("HTTP/"):
            raise ValueError("not HTTP")
        return int(first[1])
    finally:
        await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
