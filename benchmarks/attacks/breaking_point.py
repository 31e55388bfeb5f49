"""Opens more and more connections at a router, and prints the number at which it stops serving.

    python -m benchmarks.attacks.breaking_point [--idle 1000,2000,5000,10000] [--asking 100,400,1600] [--addresses 8]

The router, pools and engines are the same as in `benchmarks.attacks`. Each step opens a number of connections at once,
from `--addresses` loopback addresses. In steps `idle` they send nothing (strangers); in steps `asking` they send one
request after another. Meanwhile seven known clients, whose connections were open before, and new clients send requests.

The line of a step has these figures in order: the step's connections that stayed open, that were answered 4xx or 5xx,
and that were closed without an answer; the known clients' requests, and how many failed; the new clients that were
served and that were refused; the requests of the step's own clients, and how many failed; the router's open files and
memory; the seconds until a new client was served after the step's connections were closed; and the open files 10 s
later.

A router may hold as many files as the system allows (`ulimit -Hn`), unless `--files` sets a lower limit.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import dataclass, field
from itertools import cycle, islice

from benchmarks.attacks.__main__ import AFTERWARDS_SECONDS, Router, allow_files, routed_world, seconds_until_served, served
from benchmarks.attacks.load import PAUSE_SECONDS, Client, Load
from benchmarks.attacks.world import POOLS
from benchmarks.command_line import above_zero, count, end_everything_when_ended, numbers_of, zero_or_more

AT_ONCE = 200
"""Maximum number of connections that are opened at the same time."""
NEW_CLIENTS = 20
CONNECT_SECONDS = 30.0


class Stranger(asyncio.Protocol):
    """A connection that sends nothing. `end` says how the router ended the connection; it is empty while the connection
    is open.
    """

    end = ""

    def __init__(self) -> None:
        self.transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.end = "refused" if data[:10] in {b"HTTP/1.1 4", b"HTTP/1.1 5"} else self.end

    def connection_lost(self, error: Exception | None) -> None:
        self.end = self.end or "closed"


@dataclass
class Step:
    """The findings for one number of connections."""

    kind: str
    connections: int
    open: int = 0
    refused: int = 0
    closed: int = 0
    known: Load = field(default_factory=lambda: Load(0))
    own: Load = field(default_factory=lambda: Load(0))
    new_served: int = 0
    new_refused: int = 0
    files: int = 0
    memory_mb: float = 0.0
    back_seconds: float = 0.0
    files_after: int = 0

    def line(self) -> str:
        return (
            f"{self.kind:<8}{self.connections:>8}{self.open:>8}{self.refused:>8}{self.closed:>8}"
            f"{len(self.known.seconds):>8}{self.known.failed:>7}{self.new_served:>8}{self.new_refused:>8}"
            f"{len(self.own.seconds):>8}{self.own.failed:>7}{self.own.share(0.99):>9.0f}"
            f"{self.files:>8}{self.memory_mb:>7.0f}{self.back_seconds:>7.1f}{self.files_after:>7}"
        )


HEADER = (
    f"{'kind':<8}{'wanted':>8}{'open':>8}{'4xx/5xx':>8}{'closed':>8}{'known':>8}{'failed':>7}{'new':>8}{'refused':>8}"
    f"{'own':>8}{'failed':>7}{'p99 ms':>9}{'files':>8}{'MB':>7}{'back':>7}{'files':>7}"
)


async def idle(port: int, connections: int, addresses: int) -> list[Stranger]:
    """Return strangers from several addresses; a stranger that cannot connect counts as closed."""
    loop = asyncio.get_running_loop()

    async def one(address: str) -> Stranger:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, stranger = await loop.create_connection(Stranger, "127.0.0.1", port, local_addr=(address, 0))
        except (OSError, TimeoutError):
            stranger = Stranger()
            stranger.end = "closed"
        return stranger

    places = cycle(f"127.0.0.{number}" for number in range(2, addresses + 2))
    found: list[Stranger] = []
    while len(found) < connections:
        found += await asyncio.gather(*(one(place) for place in islice(places, min(AT_ONCE, connections - len(found)))))
    return found


async def asking(port: int, connections: int, seconds: float) -> Load:
    """Run clients that send one request after another, each on its own connection, and return their load."""
    load, end = Load(port), time.monotonic() + seconds

    async def one(number: int) -> None:
        client = Client(port, f"pool-{1 + number % 7}")
        while (began := time.monotonic()) < end:
            load.failed += not await client.ask()
            load.seconds.append(time.monotonic() - began)
        client.close()

    await asyncio.gather(*(one(number) for number in range(connections)))
    return load


async def known(load: Load, ended: asyncio.Event) -> None:
    """Run one client for each pool except the first, until the event is set.

    Each client sends one request after the other on the same connection.
    """

    async def one(number: int) -> None:
        client = Client(load.port, f"pool-{number}")
        while not ended.is_set():
            began = time.monotonic()
            load.failed += not await client.ask()
            load.seconds.append(time.monotonic() - began)
            await asyncio.sleep(PAUSE_SECONDS)
        client.close()

    await asyncio.gather(*(one(number) for number in range(1, POOLS)))


async def step(router: Router, kind: str, connections: int, *, addresses: int, seconds: float, afterwards: float) -> Step:
    """Measure the router with this number of connections and return the findings."""
    found, ended, strangers = Step(kind, connections, known=Load(router.port)), asyncio.Event(), list[Stranger]()
    serving = asyncio.create_task(known(found.known, ended))
    await asyncio.sleep(1.0)  # the known ones' connections are open
    if kind == "idle":
        strangers = await idle(router.port, connections, addresses)
        await asyncio.sleep(seconds)
    else:
        found.own = await asking(router.port, connections, seconds)
    for _ in range(NEW_CLIENTS):
        if await served(router.port):
            found.new_served += 1
        else:
            found.new_refused += 1
    found.files, found.memory_mb = router.files(), router.memory_mb()
    found.open = sum(not one.end for one in strangers)
    found.refused, found.closed = (sum(one.end == end for one in strangers) for end in ("refused", "closed"))
    for one in strangers:
        if isinstance(one.transport, asyncio.Transport):
            one.transport.abort()
    ended.set()
    await serving
    found.back_seconds = await seconds_until_served(router.port)
    await asyncio.sleep(afterwards)
    found.files_after = router.files()
    return found


async def run(router: Router, options: argparse.Namespace) -> None:
    print(HEADER, flush=True)
    for kind in ("idle", "asking"):
        for connections in getattr(options, kind):
            found = await step(
                router, kind, connections, addresses=options.addresses, seconds=options.seconds, afterwards=options.afterwards
            )
            print(found.line(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=numbers_of, default="1000,2000,5000,10000", help="numbers of silent connections, one for each step")
    parser.add_argument(
        "--asking", type=numbers_of, default="100,400,1600", help="numbers of clients that send requests all the time, one for each step"
    )
    parser.add_argument("--addresses", type=count, default=8, help="number of loopback addresses from which strangers connect")
    parser.add_argument("--files", type=count, default=None, help="the router's limit of open files")
    parser.add_argument("--seconds", type=above_zero, default=5.0, help="seconds that each step lasts once its connections are open")
    parser.add_argument("--afterwards", type=zero_or_more, default=AFTERWARDS_SECONDS, help="seconds until files are read again")
    parser.add_argument("--first-port", type=count, default=29160, help="port of the first engine, as in benchmarks.attacks")
    options = parser.parse_args()
    end_everything_when_ended()
    allow_files()
    with routed_world(options.first_port, options.files) as router:
        asyncio.run(run(router, options))


if __name__ == "__main__":
    main()
