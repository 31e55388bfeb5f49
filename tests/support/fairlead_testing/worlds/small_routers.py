"""A router process with a low limit of open files; its memory and files are read from /proc."""

import asyncio
import os
import resource
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from fairlead_testing.fakes.system_api import ROUTER_TOKEN
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import World
from processkube.testing.ports import free_port

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class Ports:
    """The pid and the ports of a router process."""

    pid: int
    clients: int
    operators: int
    picker: int
    health: int
    publishers: int
    routers: int

    def files(self) -> int:
        """Return the number of the process's open files."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def memory(self) -> float:
        """Return the process's resident memory in MiB."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * resource.getpagesize() / MEBIBYTE

    def most_memory(self) -> float:
        """Return the process's highest resident memory so far, in MiB."""
        return int(Path(f"/proc/{self.pid}/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


@asynccontextmanager
async def small_router(world: World, files: int, **environment: str) -> AsyncIterator[Ports]:
    """Run a router process that may open this many files, in front of the world's engines; one is started if there are
    none.
    """
    if not world.engines:
        await world.start_engines(1)
    world.api.state.set_table(world.table())
    clients, operators, picker, health, publishers, routers = (free_port() for _ in range(6))
    variables = {
        **os.environ,
        "FAIRLEAD_API_URL": world.api.url,
        "FAIRLEAD_API_TOKEN": ROUTER_TOKEN,
        "FAIRLEAD_ROUTER_ID": "router-0",
        "FAIRLEAD_SPOOL_DIR": str(world.directory / "router-0"),
        "FAIRLEAD_PICKER_PORT": str(picker),
        "FAIRLEAD_PICKER_HEALTH_PORT": str(health),
        "FAIRLEAD_KV_EVENTS_PORT": str(publishers),
        "FAIRLEAD_ROUTER_ASK_HOST": "127.0.0.1",
        "FAIRLEAD_ROUTER_ASK_PORT": str(routers),
        **environment,
    }
    command = (sys.executable, "-m", "fairlead_router.main", "--port", str(clients), "--admin-port", str(operators))
    limit: Callable[[], None] = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))  # noqa: E731
    with Path(world.directory / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(*command, env=variables, stderr=log, preexec_fn=limit)
    try:
        ports = Ports(process.pid, clients, operators, picker, health, publishers, routers)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await _is_ready(ports):
                await asyncio.sleep(0.1)
        yield ports
    finally:
        process.kill()
        await process.wait()


async def _is_ready(ports: Ports) -> bool:
    with suppress(httpx.HTTPError):
        return await status_of(ports.clients, "/readyz") == 200
    return False


async def status_of(port: int, path: str) -> int:
    """Return the HTTP status of a GET of `path` at a port of this machine."""
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as client:
        return (await client.get(f"http://127.0.0.1:{port}{path}")).status_code
