"""The activity of the pool: a process in which two routers report five times a second, and an operator reports the
pool's state.

On demand it sends an additional report at once, and returns the time at which it began to send it.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from fairlead.instances import InstanceState, Role
from fairlead.pool_states import InstanceReport, PoolState
from fairlead.reports.batches import Acknowledgement, ReportBatch, RouterState
from fairlead.reports.bindings import BindingChange, BindingReason
from fairlead.reports.decisions import CandidateScore, DecisionReason, DecisionRecord, Weighing
from fairlead.reports.loads import InstanceInFlight, LoadSample
from fairlead.reports.moves import MigrationRecord, MoveOutcome
from fairlead.reports.objectives import SloSample
from fairlead.reports.rejections import RejectionReason, RejectionRecord
from fairlead.tables import PoolKey
from fairlead_client.internal import SystemApi
from fairlead_client.outcomes import Refused, Taken
from fairlead_client.report_posts import encode_batch
from fairlead_testing.running.api import SECRETS

POOL = PoolKey(namespace="big", name="p1")
ROUTERS = 2
POSTS_A_SECOND = 5
STATE_SECONDS = 2.0
CANDIDATES = 8
SPEC: dict[str, Any] = {
    "model": "m",
    "engine": {"type": "simulated"},
    "routing": {"policy": "fairlead"},
    "scaling": {"schedules": [{"name": "p1", "cron": "0 8 * * *", "duration": "1h", "roles": [{"name": "both", "minReplicas": 1}]}]},
}


class Traffic:
    """A process that sends reports until the block ends."""

    def __init__(self, control: Connection) -> None:
        self._control = control

    def cordon(self, count: int) -> float:
        """Report, as the operator, that the first `count` instances are cordoned and all others serve.

        Return the Unix time at which the report began.
        """
        return self._ask(("cordon", count))

    def move(self, name: str) -> float:
        """Report, as a router, a migration with this id. Return the Unix time at which the report began."""
        return self._ask(("move", name))

    def refused(self) -> int:
        """Return the number of posts so far that the API did not accept."""
        return int(self._ask(("refused", 0)))

    def _ask(self, what: tuple[str, object]) -> float:
        self._control.send(what)
        return float(self._control.recv())


@contextmanager
def traffic(url: str, instances: int) -> Iterator[Traffic]:
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(url, instances, there), daemon=True)
    process.start()
    there.close()  # so that its end is noticed here
    try:
        here.recv()  # once the pool's state and a first second of reports are taken
        yield Traffic(here)
    finally:
        here.send(None)
        process.join(30)
        if process.is_alive():
            process.kill()


def _run(url: str, instances: int, control: Connection) -> None:
    asyncio.run(_Pool(url, instances).run(control))


class _Pool:
    def __init__(self, url: str, instances: int) -> None:
        self._url = url
        self._names = [f"i{number}" for number in range(1, instances + 1)]
        self._cordoned = 0
        self._version = 0
        self._table = 0
        self._refused = 0
        self._random = random.Random(7)
        self._load = [self._random.uniform(0, 6) for _ in self._names]
        self._born = time.time() - 86_400

    async def run(self, control: Connection) -> None:
        loop = asyncio.get_running_loop()
        async with (
            SystemApi(self._url, SECRETS["system-operator"]) as self._operator,
            SystemApi(self._url, SECRETS["system-router"]) as api,
        ):
            self._routers = api
            await self._tell_state()
            work = [loop.create_task(self._keep_telling()), *(loop.create_task(self._report(number)) for number in range(ROUTERS))]
            await asyncio.sleep(1)
            control.send(0.0)
            while (what := await loop.run_in_executor(None, control.recv)) is not None:
                control.send(await self._asked(*what))
            for one in work:
                one.cancel()

    async def _asked(self, kind: str, value: Any) -> float:
        begun = time.time()
        if kind == "cordon":
            self._cordoned = value
            await self._tell_state()
        elif kind == "move":
            await self._post(0, ReportBatch(id=uuid.uuid4().hex, router="router-0", **self._moved(value)))
        return begun if kind != "refused" else float(self._refused)

    # ── the operator ──

    async def _keep_telling(self) -> None:
        while True:
            await asyncio.sleep(STATE_SECONDS)
            await self._tell_state()

    async def _tell_state(self) -> None:
        count = len(self._names)
        self._version += 1
        found = await self._operator.put_state(
            POOL,
            PoolState(
                uid="u1",
                generation=2,
                resource_version=str(100 + self._version),
                spec={**SPEC, "replicas": count, "roles": [{"name": "both", "minReplicas": 1, "maxReplicas": count}]},
                changed_by="kubectl",
                conditions=(
                    {"type": "Ready", "status": "True", "reason": "Serving", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                ),
                desired={"both": count},
                instances=tuple(self._instance(number, name) for number, name in enumerate(self._names)),
            ),
        )
        if isinstance(found, Taken):
            self._table = found.answer.table_version
        elif isinstance(found, Refused):
            raise SystemExit(found.problem)  # no later one would be taken, and the pool would stay as it was filled
        else:
            self._refused += 1

    def _instance(self, number: int, name: str) -> InstanceReport:
        return InstanceReport(
            id=name,
            pod_uid=f"pod{number + 1}",
            address=f"127.0.{number // 250}.{number % 250 + 1}:8000",
            role=Role.BOTH,
            state=InstanceState.CORDONED if number < self._cordoned else InstanceState.SERVING,
            reason="a person cordoned it" if number < self._cordoned else "Ready",
            node=f"node-{number // 8}",
            created_at=self._born,
        )

    # ── the routers ──

    async def _report(self, router: int) -> None:
        begun, post = time.time(), 0
        while True:
            second, part = int(begun) + post // POSTS_A_SECOND, post % POSTS_A_SECOND
            await asyncio.sleep(begun + 1 + post / POSTS_A_SECOND - time.time())  # of a second that is over
            loads = tuple(self._sample(number, second) for number in range(part, len(self._names), POSTS_A_SECOND))
            records: dict[str, Any] = {"loads": loads, "decisions": tuple(self._decision() for _ in range(2))}
            if part == 0:
                records |= {"slo_samples": (self._kept(second),), "rejections": (self._rejection(second),), **self._moved(uuid.uuid4().hex)}
            await self._post(router, ReportBatch(id=uuid.uuid4().hex, router=f"router-{router}", **records))
            post += 1

    async def _post(self, router: int, batch: ReportBatch) -> None:
        state = RouterState(
            sent_at=time.time(),
            acknowledged=(Acknowledgement(pool=POOL, version=self._table),),
            in_flight=tuple(
                InstanceInFlight(pool=POOL, instance=name, in_flight=round(self._load[number] / ROUTERS), waiting=0)
                for number, name in enumerate(self._names)
            ),
        )
        outcome = await self._routers.post_reports([encode_batch(batch)], state)
        self._refused += not isinstance(outcome, Taken)

    def _sample(self, number: int, second: int) -> LoadSample:
        load = self._load[number] = min(12.0, max(0.0, self._load[number] + self._random.gauss(0, 0.6)))
        ttft = 0.2 + load * 0.4 * self._random.random()
        return LoadSample(
            pool=POOL,
            instance=self._names[number],
            second=second,
            running=round(load / ROUTERS),
            waiting=max(0, round(load) - 8),
            pending_prefill_tokens=round(-math.log(1 - self._random.random()) * 200 * load),
            in_flight=round(load / ROUTERS),
            kv_usage=round(min(1.0, load / 12 + 0.1 * self._random.random()), 3),
            requests=1,
            completed=1,
            prompt_tokens=3000,
            hit_tokens=1500,
            output_tokens=200,
            ttft_seconds=(round(ttft, 3),),
            tpot_seconds=(0.03,),
            ttft_within_slo=int(ttft < 5),
            ttft_total=1,
            tpot_within_slo=1,
            tpot_total=1,
            within_slo=int(ttft < 5),
            judged_by_slo=1,
            prefilled_tokens=1500,
            prefilling_seconds=0.3,
            generated_tokens=200,
        )

    def _decision(self) -> DecisionRecord:
        chosen, *others = self._random.sample(self._names, CANDIDATES)
        scores = tuple(
            CandidateScore(
                instance=one,
                hit_tokens=1500,
                miss_tokens=1500,
                pending_tokens=400,
                predicted_ttft_seconds=0.4,
                total=0.4,
                terms={"wait": 0.1},
            )
            for one in (chosen, *others)
        )
        return DecisionRecord(
            id=uuid.uuid4().hex,
            pool=POOL,
            request=uuid.uuid4().hex,
            session=None,
            at=time.time(),
            policy="fairlead",
            table_version=max(1, self._table),
            chosen=chosen,
            runner_up=others[0],
            reason=DecisionReason.SESSION_BOUND,
            prompt_tokens=3000,
            queued_seconds=0.1,
            ttft_seconds=0.5,
            sample_rate=0.05,
            weighing=Weighing(rule="slo", candidates=scores, considered=len(self._names)),
        )

    def _kept(self, second: int) -> SloSample:
        judged = len(self._names)
        return SloSample(pool=POOL, second=second, judged=judged, within_slo=judged - 9, ttft_within_slo=judged - 9, refused=1)

    def _rejection(self, second: int) -> RejectionRecord:
        return RejectionRecord(
            pool=POOL,
            second=second,
            reason=RejectionReason.PREDICTED_TTFT,
            count=1,
            status=429,
            sample_request=uuid.uuid4().hex,
            sample_prompt_tokens=9000,
            retry_after_seconds=2,
        )

    def _moved(self, name: str) -> dict[str, Any]:
        """Return the records of a new session and of its first migration."""
        source, target = self._random.sample(self._names, 2)
        session, first, now = uuid.uuid4().hex, uuid.uuid4().hex, time.time()
        bound = BindingChange(
            id=first, pool=POOL, session=session, instance=source, reason=BindingReason.COLD, at=now - 0.1, context_tokens=900
        )
        moved = BindingChange(
            id=name,
            pool=POOL,
            session=session,
            instance=target,
            previous=source,
            reason=BindingReason.SLO,
            at=now,
            after=first,
            context_tokens=900,
        )
        record = MigrationRecord(
            id=name,
            pool=POOL,
            session=session,
            request=uuid.uuid4().hex,
            source=source,
            target=target,
            trigger=BindingReason.SLO,
            at=now,
            predicted_source_ttft_seconds=4.0,
            predicted_target_ttft_seconds=0.6,
            benefit_seconds=3.4,
            actual_ttft_seconds=0.7,
            outcome=MoveOutcome.COMPLETED,
        )
        return {"bindings": (bound, moved), "migrations": (record,)}
