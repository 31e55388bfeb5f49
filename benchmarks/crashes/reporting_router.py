"""The reporting of one router, as a process: `python -m benchmarks.crashes.reporting_router NAME URLS FOLDER …`.

Records are made at a fixed rate, even if they cannot be delivered. They use the router's own code for the disk and the
API. Prints a JSON line twice a second, and a line with `"done": true` when everything was acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import uuid
from pathlib import Path
from typing import Any

from benchmarks.crashes.facts import records

from fairlead_client.internal import SystemApi
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.keys import GatewayKeys
from fairlead_router.pools.pools import Pools
from fairlead_router.reporting.collecting import encode_batches
from fairlead_router.reporting.delivering import Delivery
from fairlead_router.reporting.spool import Spool
from fairlead_router.reporting.spool_metrics import SpoolMetrics

SPOOL_BYTES = 512 * 1024 * 1024
DRAIN_SECONDS = 600.0
"""Maximum seconds to wait for the last acknowledgement."""
LOOK_SECONDS = 0.05


async def report(name: str, urls: list[str], token: str, folder: Path, rate: float, reports: int, tick_seconds: float) -> None:
    """Write records to disk at `rate` decisions a second until there are `reports` reports; end when all were
    accepted.
    """
    spool, metrics = Spool(folder, SPOOL_BYTES, time.time), RouterMetrics()
    spool.open()
    pools = Pools(_no_tables, metrics, time.time)
    spool_metrics = SpoolMetrics(spool, metrics, time.time)
    async with SystemApi(urls, token) as api:
        keys = GatewayKeys((), metrics, required=False)
        delivery = Delivery(name, pools, keys, spool, api, metrics, spool_metrics, time.time, lambda: uuid.uuid4().hex)
        sending = asyncio.create_task(delivery.send_forever())
        telling = asyncio.create_task(_tell_forever(metrics, spool_metrics))
        ticks = decisions = made = seconds = 0
        begun = time.time()
        last_second = int(begun)
        while made < reports:
            now = time.time()
            ended = list(range(last_second, int(now)))
            last_second = int(now)
            due = round((ticks + 1) * rate * tick_seconds) - decisions
            batches = list(encode_batches(name, records(name, ticks, due, now, ended), lambda: uuid.uuid4().hex))
            for batch in batches:
                await asyncio.to_thread(spool.append, batch.cargo, batch.records, batch.content)
            delivery.wake()
            ticks, decisions, made, seconds = ticks + 1, decisions + due, made + len(batches), seconds + len(ended)
            await asyncio.sleep(max(0.0, begun + ticks * tick_seconds - time.time()))
        produced = time.time() - begun
        for _ in range(int(DRAIN_SECONDS / LOOK_SECONDS)):
            if not len(spool):
                break
            await asyncio.sleep(LOOK_SECONDS)
        told = {"ticks": ticks, "decisions": decisions, "seconds": seconds, "reports": made, "produced_seconds": produced}
        left = {"left": len(spool), "dropped": sum(spool.dropped.values()), "aside": spool.aside}
        print(json.dumps({"done": True, **told, **left}), flush=True)
        telling.cancel()
        sending.cancel()
        await asyncio.wait({sending, telling})


async def _tell_forever(metrics: RouterMetrics, spool_metrics: SpoolMetrics) -> None:
    while True:
        spool_metrics.refresh()
        told = {"at": time.time(), "batches": metrics.spool_batches, "oldest_seconds": metrics.oldest_unsent_report_seconds}
        print(json.dumps(told), flush=True)
        await asyncio.sleep(0.5)


def _no_tables(_table: object) -> Any:
    raise LookupError("this router has no tables")


def main() -> None:
    """Read the command line and report."""
    reading = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    reading.add_argument("name")
    reading.add_argument("urls", help="URLs of the API processes, separated by commas")
    reading.add_argument("folder", type=Path)
    reading.add_argument("--token", required=True)
    reading.add_argument("--rate", type=float, required=True, help="decisions a second")
    reading.add_argument("--reports", type=int, required=True)
    reading.add_argument("--tick", type=float, required=True, help="seconds between two collections of records")
    given = reading.parse_args()
    asyncio.run(report(given.name, given.urls.split(","), given.token, given.folder, given.rate, given.reports, given.tick))


if __name__ == "__main__":
    main()
