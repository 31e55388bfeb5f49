"""Measures the cost of letting another router decide: how long a request waits for the decision, and how many requests
per second from other routers one deciding process can handle.

    .venv/bin/python -m benchmarks.asking [--instances 64] [--requests 20000] [--in-flight 64]

Two processes of this machine, each with the router's own pools and company, find each other in a folder. They are
connected over the loopback, so the delays of a network are missing. Prompts have 32 blocks. Every instance accepts
every request at once, so that requests wait only for the decision. The benchmark prints p50 and p99 in microseconds,
from the submission of a request to its decision, in three cases: for a router that is alone, for requests sent one at a
time to the deciding router, and for many requests in flight. Then it prints the CPU time per request with many requests
in flight, for a router that is alone and for both processes. The CPU time includes all messages to the deciding router.
Its inverse is the capacity of a core.
"""

import argparse
import asyncio
import gc
import multiprocessing
import os
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter, process_time

import uvloop
from benchmarks.command_line import count

from fairlead.instances import InstanceState
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.contracts.sharing import decider_of
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead.tables import EarlyRejectionFacts, EngineFacts, InstanceEntry, PoolKey, RoutingFacts, RoutingTable, SessionFacts, SloFacts
from fairlead_process.clock import SteadyClock
from fairlead_router.deciding.company import LOOK_SECONDS, Company
from fairlead_router.deciding.listed import Folder
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_router.protocols.answers import Usage

NAMES = ("router-0", "router-1")
POOL = PoolKey(namespace="default", name="chat")
BLOCKS = 32


def table_of(instances: int) -> RoutingTable:
    """Return a pool's routing table with the default policy and without queues in the router."""
    return RoutingTable(
        pool=POOL,
        uid="u",
        version=1,
        generation=1,
        model="m",
        engine=EngineFacts(),
        routing=RoutingFacts(policy="fairlead", prefills_in_flight=0),
        session=SessionFacts(),
        slo=SloFacts(),
        early_rejection=EarlyRejectionFacts(),
        instances=tuple(
            InstanceEntry(id=f"chat-b{index:04d}", address="127.0.0.1:8000", state=InstanceState.SERVING) for index in range(instances)
        ),
    )


class Member:
    """A router's pools and its connection to other routers; `folder` is None for a router that is alone."""

    def __init__(self, name: str, instances: int, folder: Path | None) -> None:
        self.now = SteadyClock()
        self.metrics = RouterMetrics()
        self.pools = Pools(lambda table: SharedScheduler(table, name, 1, sample_rate=0.05), self.metrics, self.now)
        self.pools.apply(table_of(instances))
        directories = [] if folder is None else [Folder(folder)]
        self.company = Company(directories, name, self.pools, self.metrics, self.now)
        (self.pool,) = self.pools.all()

    async def keep_looking(self) -> None:
        """Do a router's background work: look for other routers, tick the scheduler, and take its records."""
        while True:
            await self.company.look()
            self.pool.tick(self.now())
            self.pool.scheduler.take_records(self.now())
            await asyncio.sleep(LOOK_SECONDS)


def decide(name: str, instances: int, folder: Path, control: Connection) -> None:
    """Run the deciding process. It answers each message with its CPU seconds so far; the message None ends it."""

    async def run() -> None:
        member = Member(name, instances, folder)
        looking = asyncio.create_task(member.keep_looking())
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()
        loop.add_reader(control.fileno(), asked.set)
        while True:
            await asked.wait()
            asked.clear()
            if control.recv() is None:
                break
            control.send(process_time())
        looking.cancel()
        member.company.close()

    gc.freeze()
    uvloop.run(run())


def request(number: int, now: float) -> RoutingRequest:
    """Return a request whose prompt shares its first half with the prompts of other requests."""
    group = number % 50
    blocks = (*(group * 1000 + index for index in range(BLOCKS // 2)), *(number * 10_000 + index for index in range(BLOCKS // 2)))
    return RoutingRequest(
        id=f"router-{number}", arrived_at=now, prompt_tokens=BLOCKS * 512, blocks=blocks, first_bytes_hash=group, session=f"s{number % 500}"
    )


async def serve(member: Member, pool: Pool, number: int) -> float:
    """Return the seconds until the request is decided. The request is then completed at once."""
    now = member.now()
    made = request(number, now)
    began = perf_counter()
    ticket = pool.account.submit(made, now)
    verdict = await ticket.decided()
    seconds = perf_counter() - began
    assert isinstance(verdict, Dispatch), verdict
    pool.account.first_token(ticket, member.now())
    pool.account.complete(ticket, member.now(), Usage(100, 0, made.prompt_tokens))
    return seconds


async def serve_all(member: Member, numbers: range, in_flight: int) -> list[float]:
    """Return the seconds until the decision of each request, with `in_flight` requests at a time."""
    left = iter(numbers)
    found: list[float] = []

    async def client() -> None:
        for number in left:
            found.append(await serve(member, member.pool, number))
            await asyncio.sleep(0)

    await asyncio.gather(*(client() for _ in range(in_flight)))
    return found


def shown(title: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    p50, p99 = (1e6 * ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
    print(f"{title:<32} p50 {p50:7.0f} us   p99 {p99:7.0f} us")


async def measure(requests: int, instances: int, in_flight: int, folder: Path, front: str, control: Connection) -> None:
    """Measure and print all figures."""
    gc.freeze()  # as the other process does
    alone = Member("alone", instances, None)
    await serve_all(alone, range(1000), 1)
    shown("alone, one at a time", await serve_all(alone, range(1000, 1000 + requests), 1))
    began = process_time()
    await serve_all(alone, range(1000 + requests, 1000 + 2 * requests), in_flight)
    alone_cpu = (process_time() - began) / requests
    member = Member(front, instances, folder)
    looking = asyncio.create_task(member.keep_looking())
    while not member.metrics.asked_pools:  # noqa: ASYNC110 - nothing else tells
        await asyncio.sleep(0.05)
    await serve_all(member, range(1000), 1)
    shown("asked, one at a time", await serve_all(member, range(1000, 1000 + requests), 1))

    def other_cpu() -> float:
        control.send("time")
        return float(control.recv())

    before, began, clock = other_cpu(), process_time(), perf_counter()
    shown(f"asked, {in_flight} at a time", await serve_all(member, range(1000 + requests, 1000 + 2 * requests), in_flight))
    seconds = perf_counter() - clock
    front_cpu, decider_cpu = (process_time() - began) / requests, (other_cpu() - before) / requests
    assert member.metrics.asked_pools == 1
    assert member.metrics.lost_routers == 0
    print(f"CPU per request: alone {1e6 * alone_cpu:.0f} us, asking {1e6 * front_cpu:.0f} us, deciding for it {1e6 * decider_cpu:.0f} us")
    print(f"one deciding process: {1 / decider_cpu:.0f} requests a CPU second; {requests / seconds:.0f} a second went through here")
    looking.cancel()
    member.company.close()
    control.send(None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=count, default=64)
    parser.add_argument("--requests", type=count, default=20_000)
    parser.add_argument("--in-flight", type=count, default=64)
    asked = parser.parse_args()
    decider = decider_of(POOL, NAMES)
    (front,) = set(NAMES) - {decider}
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "routers"
        process = context.Process(target=decide, args=(decider, asked.instances, folder, there), daemon=True)
        process.start()
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {asked.instances} instances, prompts of {BLOCKS} blocks")
        uvloop.run(measure(asked.requests, asked.instances, asked.in_flight, folder, front, here))
        process.join()


if __name__ == "__main__":
    main()
