"""The command line of the package, which its docstring describes."""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

from benchmarks.attacks import __doc__ as package_doc
from benchmarks.attacks.clients import CLIENTS, ENGINES, NAMES, SUSPENDED, Attacker, prompts
from benchmarks.attacks.growth import Growth, memory_mb, open_files
from benchmarks.attacks.load import Client, Load
from benchmarks.attacks.world import ENGINES as ENGINES_A_POOL
from benchmarks.attacks.world import POOLS
from benchmarks.command_line import above_zero, count, end_everything_when_ended, names_of, zero_or_more
from benchmarks.gateway import check_free, process, wait_until

HONEST = "none"
"""The name of the state without an attack: the hostile engines behave like all other engines."""
AFTERWARDS_SECONDS = 10.0
"""Seconds after the attack until memory and files are read again."""
LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """A router under attack, and the port at which the attack of its engines is selected."""

    pid: int
    port: int
    switch_port: int
    somebody_port: int
    """The port of a program that takes the place of the router. The hostile engines can send their bytes to it instead.
    """

    def memory_mb(self) -> float:
        return memory_mb(self.pid)

    def files(self) -> int:
        return open_files(self.pid)

    async def switch(self, attack: str) -> None:
        """Let the hostile engines make this attack from now on."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.switch_port)
        writer.write(f"GET /attack/{attack} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        writer.close()


@contextmanager
def routed_world(first_port: int, files: int | None = None) -> Iterator[Router]:
    """Yield a router that may open `files` files. The router, its control API and its engines run as processes until
    the block ends.
    """
    api_port, port, switch_port, somebody_port = first_port - 1, first_port - 2, first_port - 3, first_port - 4
    check_free((somebody_port, switch_port, port, api_port, *range(first_port, first_port + POOLS * ENGINES_A_POOL)))
    last = (os.cpu_count() or 1) - 1
    world = [sys.executable, "-m", "benchmarks.attacks.world"]
    hostile = ["nice", "-n", "19", *world, str(switch_port), str(first_port), "hostile"]
    somebody = ["nice", "-n", "19", *world, str(somebody_port), str(first_port), "somebody"]
    honest = [*world, str(api_port), str(first_port), "honest"]
    command = [sys.executable, "-m", "fairlead_router.main", "--port", str(port), "--admin-port", "0"]
    command = command if files is None else ["prlimit", f"--nofile={files}", *command]
    with (
        process(hostile, last) as enemies,
        process(somebody, last) as other,
        process(honest, last) as engines,
        tempfile.TemporaryDirectory() as spool,
    ):
        wait_until(enemies, switch_port, 120)
        wait_until(other, somebody_port, 120)
        wait_until(engines, first_port + POOLS * ENGINES_A_POOL - 1, 120)
        environment = {
            "FAIRLEAD_API_URL": f"http://127.0.0.1:{api_port}",
            "FAIRLEAD_API_TOKEN": "attacks",
            "FAIRLEAD_ROUTER_ID": "attacks",
            "FAIRLEAD_SPOOL_DIR": spool,
            "FAIRLEAD_LOG_LEVEL": "ERROR",
        }
        with process(command, 0, environment) as router:
            wait_until(router, port, 120, "/readyz")
            yield Router(pid=router.pid, port=port, switch_port=switch_port, somebody_port=somebody_port)


@dataclass
class Findings:
    """The effects of one attack."""

    name: str
    before: Load
    during: Load
    beside: Load
    """The load while the hostile engines send the same bytes to another program and not to the router."""
    attacker: Attacker
    memory: list[float] = field(default_factory=list)
    """The router's memory in MiB: before the attack, its maximum, and after the attack."""
    files: list[int] = field(default_factory=list)
    recovered_seconds: float = 0.0

    def line(self) -> str:
        was, became, beside = self.before.share(0.99), self.during.share(0.99), self.beside.share(0.99)
        ratio, due = became / was if was else 0.0, became / beside if beside else 0.0
        row = (
            f"{self.name:<20}{len(self.during.seconds):>7}{self.during.failed:>7}"
            f"{self.before.share(0.5):>8.1f}{self.during.share(0.5):>8.1f}{was:>9.1f}{became:>9.1f}{ratio:>7.2f}{beside:>9.1f}{due:>7.2f}"
            f"{self.attacker.opened:>9}{self.attacker.refused:>9}"
            + "".join(f"{one:>7.0f}" for one in self.memory)
            + "".join(f"{one:>7}" for one in self.files)
            + f"{self.recovered_seconds:>8.1f}"
        )
        if self.attacker.sessions:
            each = (self.memory[2] - self.memory[0]) * 1024 * 1024 / self.attacker.sessions
            row += f"   {self.attacker.sessions} sessions, {each:.0f} bytes each"
        return row


HEADER = (
    f"{'attack':<20}{'asked':>7}{'failed':>7}{'p50':>8}{'with':>8}{'p99 ms':>9}{'with':>9}{'ratio':>7}{'alone':>9}{'ratio':>7}{'opened':>9}{'refused':>9}"
    f"{'MB':>7}{'most':>7}{'after':>7}{'files':>7}{'most':>7}{'after':>7}{'back s':>8}"
)


@asynccontextmanager
async def attacking(router: Router, name: str, attacker: Attacker, seconds: float) -> AsyncIterator[None]:
    """Make the attack until the block ends. For `HONEST`, send the requests of an engines' attack to engines that
    answer as usual.
    """
    if name in (*ENGINES, HONEST):
        await router.switch(name)
        task = asyncio.ensure_future(prompts(attacker))
    elif name == SUSPENDED:
        task = asyncio.ensure_future(_suspend(router, seconds))
    else:
        task = asyncio.ensure_future(CLIENTS[name](attacker))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await router.switch("none")


async def _suspend(router: Router, seconds: float) -> None:
    await asyncio.sleep(seconds / 4)
    os.kill(router.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds / 2)
    finally:
        os.kill(router.pid, signal.SIGCONT)


async def attack(
    router: Router, name: str, *, seconds: float, rounds: int, size: float, afterwards: float = AFTERWARDS_SECONDS
) -> Findings:
    """Run rounds without and with the attack in turn, and return the findings."""
    found = Findings(name, Load(router.port), Load(router.port), Load(router.port), Attacker(router.port, size))
    await Load(router.port).run(1.0)
    memory, files = router.memory_mb(), router.files()
    most = [memory, float(files)]

    async def look() -> None:
        while True:
            most[:] = max(most[0], router.memory_mb()), max(most[1], router.files())
            await asyncio.sleep(LOOK_SECONDS)

    looking = asyncio.create_task(look())
    for _ in range(rounds):
        if name not in ENGINES:
            await found.before.run(seconds)
        else:
            async with attacking(router, HONEST, Attacker(router.port, size), seconds):
                await found.before.run(seconds)
            async with attacking(router, name, Attacker(router.somebody_port, size), seconds):
                await found.beside.run(seconds)
        async with attacking(router, name, found.attacker, seconds):
            await found.during.run(seconds)
        found.recovered_seconds = max(found.recovered_seconds, await seconds_until_served(router.port))
    looking.cancel()
    await asyncio.sleep(afterwards)
    found.memory = [memory, most[0], router.memory_mb()]
    found.files = [files, int(most[1]), router.files()]
    return found


async def seconds_until_served(port: int) -> float:
    """Return the seconds until a new client of another pool is served."""
    began = time.monotonic()
    while not await served(port):  # noqa: ASYNC110 # nothing says so but an answer
        await asyncio.sleep(0.1)
    return time.monotonic() - began


async def served(port: int) -> bool:
    client = Client(port, "pool-1")
    try:
        return await client.ask()
    finally:
        client.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """The state of a router after many rounds of all attacks. The slope of its memory is computed from the last two
    thirds of the rounds.
    """

    minutes: float
    mb_an_hour: float
    files: tuple[int, int]
    """Number of open files after the first round and at the end."""
    failed: int
    """Number of failed requests to the pools that were not attacked."""


async def soak(router: Router, names: list[str], *, minutes: float, seconds: float, size: float, afterwards: float) -> Soak:
    """Run all attacks in turn, read memory and open files at the end of each round, and return the findings."""
    began, failed, growth, hours = time.monotonic(), 0, Growth(), 0.0
    while not hours or time.monotonic() - began < minutes * 60:
        for name in names:
            found = await attack(router, name, seconds=seconds, rounds=1, size=size, afterwards=afterwards)
            failed += found.during.failed
            print(found.line(), flush=True)
        hours = (time.monotonic() - began) / 3600
        growth.look({"router": router.pid}, hours)
    return Soak(minutes=hours * 60, mb_an_hour=growth.mb_an_hour("router"), files=growth.files("router"), failed=failed)


async def run(router: Router, options: argparse.Namespace) -> None:
    print(HEADER, flush=True)
    if options.soak_minutes:
        found = await soak(
            router,
            options.attacks,
            minutes=options.soak_minutes,
            seconds=options.seconds,
            size=options.size,
            afterwards=options.afterwards,
        )
        print(
            f"{found.minutes:.0f} min: memory {found.mb_an_hour:+.1f} MB/h, files {found.files[0]} → {found.files[1]}, failed {found.failed}"
        )
        return
    for name in options.attacks:
        one = await attack(router, name, seconds=options.seconds, rounds=options.rounds, size=options.size, afterwards=options.afterwards)
        print(one.line(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=package_doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attacks", type=names_of(NAMES), default=",".join(NAMES), help=f"of {', '.join(NAMES)}")
    parser.add_argument("--seconds", type=above_zero, default=4.0, help="of each round")
    parser.add_argument("--rounds", type=count, default=3, help="rounds without the attack, and as many with it")
    parser.add_argument("--size", type=above_zero, default=1.0, help="factor of an attack's connections, sessions or bytes")
    parser.add_argument("--afterwards", type=zero_or_more, default=AFTERWARDS_SECONDS, help="seconds until memory and files are read again")
    parser.add_argument(
        "--soak-minutes", type=zero_or_more, default=0.0, help="run all attacks in rounds, one after another, for this long"
    )
    parser.add_argument(
        "--first-port",
        type=count,
        default=29110,
        help="port of the first engine; router, control API, switch and a further server use the four ports before it",
    )
    options = parser.parse_args()
    end_everything_when_ended()
    allow_files()
    with routed_world(options.first_port) as router:
        asyncio.run(run(router, options))


def allow_files() -> None:
    """Raise this process's limit of open files to the maximum that the system permits, because an attack opens
    thousands of connections.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    main()
