"""Posts reports as several routers do, at once and to several API processes, and counts the rows stored per second."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from fairlead.reports.batches import ReportBatch, RouterState
from fairlead.reports.bindings import BindingChange, BindingReason
from fairlead.reports.decisions import CandidateScore, DecisionReason, DecisionRecord, Weighing
from fairlead.reports.loads import LoadSample
from fairlead.tables import PoolKey
from fairlead_client.internal import SystemApi
from fairlead_client.outcomes import Refused, Taken
from fairlead_client.report_posts import encode_batch
from fairlead_router.reporting.delivering import SHORTEST_PAUSE_SECONDS

POOL = PoolKey(namespace="big", name="p1")
BATCH = 500
POST = 2_000
"""The number of records of a post, which is the router's own maximum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """The number of rows that were acknowledged, and the seconds that this took."""

    rows: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds


def loads(number: int, at: float) -> list[LoadSample]:
    return [
        LoadSample(
            pool=POOL,
            instance=f"i{1 + row % 500}",
            second=int(at) - number * (POST // 500) - row // 500,
            running=3,
            waiting=1,
            pending_prefill_tokens=2000,
            in_flight=4,
            kv_usage=0.5,
            requests=2,
            completed=1,
            prompt_tokens=1000,
            hit_tokens=500,
            output_tokens=100,
            ttft_seconds=(0.21, 0.4),
            tpot_seconds=(0.02,),
            ttft_within_slo=1,
            ttft_total=1,
            tpot_within_slo=1,
            tpot_total=1,
            within_slo=1,
            judged_by_slo=1,
            prefilled_tokens=500,
            prefilling_seconds=0.3,
            generated_tokens=100,
        )
        for row in range(POST)
    ]


def decisions(number: int, at: float) -> list[DecisionRecord]:
    scores = tuple(
        CandidateScore(
            instance=f"i{one}",
            hit_tokens=512,
            miss_tokens=488,
            pending_tokens=100,
            predicted_ttft_seconds=0.4,
            total=1.0 + one,
            terms={"load": 0.5},
        )
        for one in (1, 2)
    )
    weighing = Weighing(rule="slo", candidates=scores, considered=500)
    return [
        DecisionRecord(
            id=uuid.uuid4().hex,
            pool=POOL,
            request=f"r{number}-{row}",
            session=None,
            at=at,
            policy="fairlead",
            table_version=1,
            chosen=f"i{1 + row % 500}",
            runner_up="i2",
            reason=DecisionReason.SESSION_BOUND,
            prompt_tokens=1000,
            queued_seconds=0.1,
            ttft_seconds=0.5,
            weighing=weighing,
        )
        for row in range(POST)
    ]


def bindings(number: int, at: float) -> list[BindingChange]:
    return [
        BindingChange(
            pool=POOL,
            id=uuid.uuid4().hex,
            session=uuid.uuid4().hex,
            instance=f"i{1 + row % 500}",
            reason=BindingReason.COLD,
            at=at,
            context_tokens=100,
        )
        for row in range(POST)
    ]


KINDS: dict[str, Callable[[int, float], list[Any]]] = {"loads": loads, "decisions": decisions, "bindings": bindings}


def posts(kind: str, router: str, count: int) -> list[list[bytes]]:
    """Return `count` encoded posts of 2,000 new records each."""
    made: list[list[bytes]] = []
    at = time.time()  # once, as a later one could make a second's load samples again, which are stored but once
    for number in range(count):
        records = KINDS[kind](number, at)
        batches = []
        for start in range(0, POST, BATCH):
            rows: dict[str, Any] = {kind: tuple(records[start : start + BATCH])}
            batches.append(encode_batch(ReportBatch(id=uuid.uuid4().hex, router=router, **rows)))
        made.append(batches)
    return made


def ingest(kind: str, urls: list[str], secret: str, routers: int, count: int) -> Ingested:
    """Let all routers post `count` times each, and return the number of stored rows and the seconds.

    A router sends two posts at once, as its lanes of samples do. Every router is a process, and its posts are encoded
    before the clock runs.
    """
    context = get_context("spawn")
    with context.Manager() as shared, ProcessPoolExecutor(routers, mp_context=context) as pool:
        start = shared.Event()
        ready = shared.Semaphore(0)
        running = [
            pool.submit(
                _router, kind, urls[number % len(urls) :] + urls[: number % len(urls)], secret, f"router-{number}", count, ready, start
            )
            for number in range(routers)
        ]
        for _ in range(routers):
            ready.acquire()
        start.set()
        spans = [future.result() for future in running]
    seconds = max(ended for _, ended in spans) - min(begun for begun, _ in spans)
    return Ingested(rows=routers * count * POST, seconds=seconds)


def _router(kind: str, urls: list[str], secret: str, name: str, count: int, ready: Any, start: Any) -> tuple[float, float]:
    made = posts(kind, name, count)
    ready.release()
    start.wait()
    return asyncio.run(_post_all(made, urls, secret))


async def _post_all(made: list[list[bytes]], urls: list[str], secret: str) -> tuple[float, float]:
    async with SystemApi(urls, secret, timeout_seconds=60) as api:
        begun = time.time()
        waiting = iter(made)
        await asyncio.gather(*(_lane(api, waiting) for _ in range(2)))
        return begun, time.time()


async def _lane(api: SystemApi, waiting: Iterator[list[bytes]]) -> None:
    for batches in waiting:
        while True:
            outcome = await api.post_reports(batches, RouterState(sent_at=time.time()), seconds=60)
            if isinstance(outcome, Taken):
                break
            if isinstance(outcome, Refused):
                raise SystemExit(f"a post was refused: {outcome.problem}")
            await asyncio.sleep(SHORTEST_PAUSE_SECONDS)  # as a router's lane does
