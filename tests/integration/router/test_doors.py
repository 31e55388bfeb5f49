"""A router process with few files and little memory: whatever some do at one port, clients are served at theirs."""

import asyncio
import os
import resource
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from fairlead_router.picking import http2
from fairlead_testing.fakes.system_api import ROUTER_TOKEN
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import World, until
from processkube.testing.ports import free_port

MEBIBYTE = 1024 * 1024
FILES = 500
STRANGERS = 450
HALF_HEAD = b"GET /metrics HTTP/1.1\r\nhost: x\r\nx-"
HALF_BODY = b"POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nx"
SERVED = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
GREETING = http2.PREFACE + http2.settings({})


@dataclass(frozen=True)
class Ports:
    """The ports of one router process, which is `pid`."""

    pid: int
    clients: int
    operators: int
    picker: int
    health: int

    def files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def memory(self) -> float:
        """In MiB."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * resource.getpagesize() / MEBIBYTE


@asynccontextmanager
async def few_files(world: World, files: int = FILES, **environment: str) -> AsyncIterator[Ports]:
    """A router process that may open this many files."""
    await world.start_engines(1)
    world.api.state.set_table(world.table())
    clients, operators, picker, health = (free_port() for _ in range(4))
    variables = {
        **os.environ,
        "FAIRLEAD_API_URL": world.api.url,
        "FAIRLEAD_API_TOKEN": ROUTER_TOKEN,
        "FAIRLEAD_ROUTER_ID": "router-0",
        "FAIRLEAD_SPOOL_DIR": str(world.directory / "router-0"),
        "FAIRLEAD_PICKER_PORT": str(picker),
        "FAIRLEAD_PICKER_HEALTH_PORT": str(health),
        **environment,
    }
    command = (sys.executable, "-m", "fairlead_router.main", "--port", str(clients), "--admin-port", str(operators))
    limit: Callable[[], None] = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))  # noqa: E731
    with Path(world.directory / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(*command, env=variables, stderr=log, preexec_fn=limit)
    try:
        ports = Ports(process.pid, clients, operators, picker, health)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await _is_ready(ports):
                await asyncio.sleep(0.1)
        yield ports
    finally:
        process.kill()
        await process.wait()


async def _is_ready(ports: Ports) -> bool:
    with suppress(httpx.HTTPError):
        return await _status(ports.clients, "/readyz") == 200
    return False


async def _status(port: int, path: str) -> int:
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as client:
        return (await client.get(f"http://127.0.0.1:{port}{path}")).status_code


async def _flood(port: int, sends: bytes) -> list[socket.socket]:
    """Strangers that send this much and then nothing."""

    async def come() -> socket.socket:
        stranger = socket.socket()
        stranger.setblocking(False)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.get_running_loop().sock_connect(stranger, ("127.0.0.1", port))
                await asyncio.get_running_loop().sock_sendall(stranger, sends)
        return stranger

    return await asyncio.gather(*(come() for _ in range(STRANGERS)))


@pytest.mark.parametrize(
    ("door", "sends"),
    [
        ("operators", b""),
        ("operators", HALF_HEAD),
        ("operators", HALF_BODY),
        ("operators", SERVED),
        ("picker", b""),
        ("picker", GREETING),
        ("health", GREETING),
        ("health", b"PRI"),
    ],
    ids=["operators: nothing", "half a head", "half a body", "idle", "picker: nothing", "a greeting", "health: a greeting", "half of one"],
)
async def test_strangers_at_one_port_take_no_files_of_another(world: World, door: str, sends: bytes) -> None:
    async with few_files(world) as ports:
        before = ports.files()
        strangers = await _flood(getattr(ports, door), sends)
        try:
            assert ports.files() - before < 40, "a sixteenth of what is left of them"
            for _ in range(3):
                assert await _status(ports.clients, "/v1/models") == 200
            await asyncio.sleep(1.1)  # from then on those who asked for nothing give their places to those who ask
            if door == "operators" and sends != SERVED:
                assert await _status(ports.operators, "/healthz") == 200
            assert await _status(ports.clients, "/v1/models") == 200
        finally:
            for stranger in strangers:
                stranger.close()
        await until(lambda: ports.files() <= before + 5)


async def test_a_full_port_refuses_politely(world: World) -> None:
    async with few_files(world) as ports:
        strangers = await _flood(ports.operators, HALF_HEAD)
        loop = asyncio.get_running_loop()
        heard = []
        for stranger in strangers[-20:]:
            with suppress(OSError):
                heard.append(await asyncio.wait_for(loop.sock_recv(stranger, 4096), PATIENCE_SECONDS))
        refused = [one for one in heard if one.startswith(b"HTTP/1.1 503 ")]
        assert refused
        assert all(b"retry-after: 1\r\n" in one for one in refused)
        proxies = await _flood(ports.picker, b"")
        told = [await asyncio.wait_for(loop.sock_recv(one, 4096), PATIENCE_SECONDS) for one in proxies[-3:]]
        assert any(one[3:4] == bytes([http2.SETTINGS]) and http2.goaway(0, 0)[3:4] in one[9:] for one in told)
        for stranger in (*strangers, *proxies):
            stranger.close()


CHAT = "/v1/chat/completions"
QUESTION = b'{"model": "mock", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}'


async def _half_bodies(port: int, count: int, size: int) -> list[asyncio.StreamWriter]:
    async def send() -> asyncio.StreamWriter:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (CHAT.encode(), size + 1))
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(10):
                for _ in range(size // 65536):
                    writer.write(b" " * 65536)
                    await writer.drain()
        return writer

    return await asyncio.gather(*(send() for _ in range(count)))


async def test_half_sent_bodies_take_the_memory_that_they_may_and_give_it_back(world: World) -> None:
    async with few_files(world, 5000, FAIRLEAD_BODY_MEMORY_BYTES=str(64 * MEBIBYTE)) as ports:
        before = ports.memory()
        writers = await _half_bodies(ports.clients, 60, 6 * MEBIBYTE)
        assert ports.memory() - before < 64 * 1.5 + 32, "of 360 MiB"
        for writer in writers:
            writer.close()
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as client, asyncio.timeout(PATIENCE_SECONDS):
            while (await client.post(f"http://127.0.0.1:{ports.clients}{CHAT}", content=QUESTION)).status_code != 200:
                await asyncio.sleep(0.1)
        await until(lambda: ports.memory() - before < 32)


async def test_answers_that_nobody_reads_take_no_more_than_bodies_may(world: World) -> None:
    large = b'{"id": "x", "object": "chat.completion", "choices": [], "text": "%s"}' % (b"x" * (12 * MEBIBYTE))
    async with few_files(world, 5000, FAIRLEAD_BODY_MEMORY_BYTES=str(64 * MEBIBYTE)) as ports:
        engine, before = world.engines[0], ports.memory()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        engine.raw = head % len(large) + large
        asked = []
        for _ in range(25):
            reader, writer = await asyncio.open_connection("127.0.0.1", ports.clients, limit=1024)
            writer.write(
                b"POST %s HTTP/1.1\r\nhost: x\r\nx-script: raw\r\ncontent-length: %d\r\n\r\n%s" % (CHAT.encode(), len(QUESTION), QUESTION)
            )
            asked.append((reader, writer))
        await asyncio.sleep(3)
        assert ports.memory() - before < 64 * 1.5 + 128, "of 300 MiB; on a busy machine the allocator holds more between two pieces"
        for _, writer in asked:
            writer.close()
        await until(lambda: ports.memory() - before < 48)


async def test_a_body_of_millions_of_values_takes_no_memory(world: World) -> None:
    async with few_files(world, 5000) as ports:
        before = ports.memory()
        body = b'{"model": "mock", "messages": [{"role": "user", "content": "hello"}], "x": [' + b"[]," * 9_000_000 + b"[]]}"
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as client:
            answer = await client.post(f"http://127.0.0.1:{ports.clients}{CHAT}", content=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
        most = int(Path(f"/proc/{ports.pid}/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
        assert most - before < 120, "read, it would take 800 MiB"
