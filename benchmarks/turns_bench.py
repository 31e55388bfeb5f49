"""The cost of two pools that share one device in turns: the time until a pool serves at the begin of its turn, when its
instance wakes or when it is started again.

    PYTHONPATH=tests/support .venv/bin/python -m benchmarks.turns_bench [--cold 240] [--wake 5] [--sleep 3] [--turn 600]
        [--turns 4] [--ttft 10]

It runs in virtual time, with the real operator on a fake cluster with fake engines. Two requests arrive per second.
They go to one pool for `--turn` seconds, then to the other pool for as long, and so on. Three ways are compared. In
`wake` the pools share a device by `roles[].warm.turns`, and their engines sleep. In `start` they share it too, but
their engines cannot sleep: each turn deletes an instance and starts another. In `apart` each pool has a device of its
own, and both serve all the time. A request waits until its pool serves. It is in time if it waits at most `--ttft`
seconds. The first turn is left out, because no engine sleeps yet.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass

from benchmarks.command_line import above_zero, count

from fairlead_operator.cluster import Resource
from fairlead_testing.worlds.turn_stages import BUSY, QUIET, TurnStage

POOLS = ("chat", "code")
A_SECOND = 2
"""The number of requests per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The arguments of a comparison; times are in seconds."""

    cold: float
    wake: float
    sleep: float
    turn: float
    turns: int
    ttft: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The figures of one way: seconds until each turn's pool served, requests in time and late, and hours of
    devices.
    """

    way: str
    waits: list[float]
    in_time: int
    late: int
    device_hours: float


def stage_of(way: str, terms: Terms) -> TurnStage:
    """Return the two pools, and the devices that they have in this way."""
    stage = TurnStage(start_seconds=terms.cold, wake_seconds=terms.wake, sleep_seconds=terms.sleep)
    for pool in POOLS:
        claims = [f"gpu-{pool}" if way == "apart" else "gpu"]
        stage.pool_of(pool, 1, {"claims": claims, "atLeast": "60s"})
        stage.planes.of[pool].demand = QUIET
    return stage


async def step(stage: TurnStage, way: str, seconds: float) -> None:
    """Let time pass. In the way `start`, engines cannot sleep."""
    await stage.second(seconds)
    if way == "start":
        stage.fake.unable |= {stage.address(name) for name in stage.states() if name in stage.born}


async def measure(way: str, terms: Terms) -> Row:
    """Return the figures of one way."""
    stage, waits, in_time, late = stage_of(way, terms), list[float](), 0, 0
    for number in range(terms.turns + 2):
        pool, begun, first = POOLS[number % 2], stage.now, None
        for other in POOLS:
            stage.planes.of[other].demand = BUSY if other == pool else QUIET
        while stage.now < begun + terms.turn:
            await step(stage, way, 1.0 if first is None else 10.0)
            if first is None and stage.serving(pool):
                first = stage.now - begun
        if number < 2:
            continue
        wait = terms.turn if first is None else first
        waits.append(wait)
        behind = min(terms.turn, max(0.0, wait - terms.ttft)) * A_SECOND
        late, in_time = late + round(behind), in_time + round(terms.turn * A_SECOND - behind)
    devices = len({stage.claim(pod["metadata"]["name"]) for pod in stage.cluster.all(Resource.PODS)})
    return Row(way=way, waits=waits, in_time=in_time, late=late, device_hours=devices * terms.turn * terms.turns / 3600)


def line(row: Row) -> str:
    """Return a row of the printed table."""
    share = row.in_time / max(1, row.in_time + row.late)
    return f"{row.way:6}  {min(row.waits):9.0f}  {max(row.waits):8.0f}  {share:8.1%}  {row.late:6}  {row.device_hours:12.2f}"


def main() -> None:
    """Print a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cold", type=above_zero, default=240.0, help="seconds that a cold start takes")
    parser.add_argument("--wake", type=above_zero, default=5.0, help="seconds that waking takes")
    parser.add_argument("--sleep", type=above_zero, default=3.0, help="seconds until a sleeper's memory is free")
    parser.add_argument("--turn", type=above_zero, default=600.0, help="seconds for which requests go to one pool")
    parser.add_argument("--turns", type=count, default=4, help="number of measured turns")
    parser.add_argument("--ttft", type=above_zero, default=10.0, help="seconds that a request may wait")
    terms = Terms(**vars(parser.parse_args()))
    print("way     least s  greatest s   in time    late  device hours")
    for way in ("wake", "start", "apart"):
        print(line(asyncio.run(measure(way, terms))), flush=True)


if __name__ == "__main__":
    main()
