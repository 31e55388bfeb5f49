"""Stores the canary steps that the operator reports, the requests to be judged, and the judgements."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import func, select, text, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.canaries.verdicts import CanaryRules, Judgement, StepVerdict
from fairlead.pool_states import CanaryVerdict, PoolState
from fairlead.reports.canaries import CanarySample
from fairlead.rollout_specs import CanarySpec
from fairlead.tables import PoolKey
from fairlead_api.canaries.judging import OpenStep
from fairlead_api.infra.database import Database
from fairlead_api.infra.pool_rows import pool_row
from fairlead_api.infra.records import read
from fairlead_api.tables import canary_looks, canary_samples, canary_steps, pools
from fairlead_client.resources.canaries import Canary, CanaryLook, CanaryStep

MOST_STEPS, MOST_LOOKS = 20, 240
_STEPS, _LOOKS, _SAMPLES = canary_steps.c, canary_looks.c, canary_samples.c
_EARLIER = text(
    "SELECT DISTINCT session FROM canary_samples WHERE pool_id = :pool AND at < :began AND at >= :since AND (step = :step OR step LIKE :key)"
)


def rules_of(canary: CanarySpec) -> CanaryRules:
    """Return the rules for judging a step. The permitted probability that the whole rollout stops a good revision is
    divided equally among its steps.
    """
    return CanaryRules(
        stop_above=canary.stop_above / 100,
        go_below=canary.go_below / 100,
        false_stops=0.01 / len(canary.steps),
        warming_seconds=canary.warm_caches_seconds,
    )


async def note_step(connection: AsyncConnection, pool_id: int, state: PoolState, canary: CanarySpec | None, now: datetime) -> None:
    """Store the canary step that `state` reports, once sessions can go to the step's new revision. End all other steps
    of the pool.
    """
    present = state.canary if canary is not None else None
    others = update(canary_steps).where(_STEPS.pool_id == pool_id, _STEPS.ended_at.is_(None))
    await connection.execute(others.where(_STEPS.step != (present.step if present else "")).values(ended_at=now))
    if present is None or canary is None or not present.share:
        return
    values = {"pool_id": pool_id, "step": present.step, "began_at": now, "rules": msgspec.to_builtins(rules_of(canary))}
    made = insert(canary_steps).values(share=present.share, **values)
    await connection.execute(made.on_conflict_do_update(index_elements=["pool_id", "step"], set_={"share": made.excluded.share}))


async def read_verdict(connection: AsyncConnection, pool_id: int, step: str) -> CanaryVerdict | None:
    """Return the newest verdict about a step."""
    query = select(canary_looks).where(_LOOKS.pool_id == pool_id, _LOOKS.step == step).order_by(_LOOKS.at.desc()).limit(1)
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else CanaryVerdict(step=step, verdict=row.verdict, reason=row.judgement["reason"])


class PostgresCanaries:
    """The reads and writes of the judging job."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open_steps(self) -> list[OpenStep]:
        """Return the canary steps in force."""
        query = (
            select(canary_steps, pools.c.namespace, pools.c.name).join(pools, pools.c.id == _STEPS.pool_id).where(_STEPS.ended_at.is_(None))
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return [
            OpenStep(
                pool_id=row.pool_id,
                pool=PoolKey(namespace=row.namespace, name=row.name),
                step=row.step,
                rules=msgspec.convert(row.rules, CanaryRules),
                began_at=row.began_at,
            )
            for row in rows
        ]

    async def earlier_sessions(self, step: OpenStep, within: timedelta) -> frozenset[str]:
        """Return the sessions that had requests within the time `within` before the step began."""
        key = {"step": step.step, "key": f"{step.step.rpartition('/')[0]}/%"}
        times = {"began": step.began_at, "since": step.began_at - within}
        async with self._database.reading() as connection:
            return frozenset((await connection.execute(_EARLIER, {"pool": step.pool_id, **key, **times})).scalars())

    async def samples(self, step: OpenStep, after: tuple[datetime, str], until: datetime, most: int) -> list[CanarySample]:
        """Return the next requests of a step, at most `most`, ordered by time and session: requests after the position
        `after` and up to the time `until`.
        """
        mine = select(canary_samples).where(_SAMPLES.pool_id == step.pool_id, _SAMPLES.step == step.step, _SAMPLES.at <= until)
        query = mine.where(tuple_(_SAMPLES.at, _SAMPLES.session) > after).order_by(_SAMPLES.at, _SAMPLES.session).limit(most)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return [read(CanarySample, row, pool=step.pool, at=row.at.timestamp()) for row in rows]

    async def count(self, step: OpenStep, until: tuple[datetime, str]) -> int:
        """Return the number of stored requests of a step up to and including the position `until`. A position is a time
        and a session, because requests are ordered by time and then by session.
        """
        mine = select(func.count()).where(_SAMPLES.pool_id == step.pool_id, _SAMPLES.step == step.step, _SAMPLES.at >= step.began_at)
        async with self._database.reading() as connection:
            return int((await connection.execute(mine.where(tuple_(_SAMPLES.at, _SAMPLES.session) <= until))).scalar_one())

    async def add(self, step: OpenStep, judgement: Judgement, at: datetime) -> None:
        """Store the judgement of a step, if the step is still in force."""

        async def work(connection: AsyncConnection) -> None:
            held = select(_STEPS.step).where(_STEPS.pool_id == step.pool_id, _STEPS.step == step.step, _STEPS.ended_at.is_(None))
            if (await connection.execute(held.with_for_update())).one_or_none() is None:
                return
            values = {"pool_id": step.pool_id, "step": step.step, "at": at, "verdict": judgement.verdict.value}
            row = insert(canary_looks).values(judgement=msgspec.to_builtins(judgement), **values)
            await connection.execute(row.on_conflict_do_nothing())

        await self._database.writing(work)

    async def newest(self, step: OpenStep) -> tuple[datetime, StepVerdict] | None:
        """Return the verdict of the step's newest stored judgement, with its time; None if no judgement is stored."""
        query = select(_LOOKS.at, _LOOKS.verdict).where(_LOOKS.pool_id == step.pool_id, _LOOKS.step == step.step)
        async with self._database.reading() as connection:
            row = (await connection.execute(query.order_by(_LOOKS.at.desc()).limit(1))).one_or_none()
        return None if row is None else (row.at, StepVerdict(row.verdict))


class CanaryReads:
    """Canaries as the public API shows them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def canary(self, pool: PoolKey) -> Canary:
        """Return the newest steps of a pool's canaries, each with its newest judgements. Raises NotFound."""
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(canary_steps).where(_STEPS.pool_id == row.id).order_by(_STEPS.began_at.desc()).limit(MOST_STEPS)
            steps = (await connection.execute(query)).all()
            looks = await _looks(connection, row.id, [one.step for one in steps])
        return Canary(pool=str(pool), steps=[_step(one, [look for look in looks if look.step == one.step]) for one in steps])


async def _looks(connection: AsyncConnection, pool_id: int, steps: Sequence[str]) -> Sequence[Any]:
    place = func.row_number().over(partition_by=_LOOKS.step, order_by=_LOOKS.at.desc()).label("place")
    numbered = select(canary_looks, place).where(_LOOKS.pool_id == pool_id, _LOOKS.step.in_(steps)).subquery()
    query = select(numbered).where(numbered.c.place <= MOST_LOOKS).order_by(numbered.c.at.desc())
    return (await connection.execute(query)).all()


def _step(row: Any, looks: Sequence[Any]) -> CanaryStep:
    warming = msgspec.convert(row.rules, CanaryRules).warming_seconds
    said = [msgspec.convert({**one.judgement, "at": one.at}, CanaryLook) for one in looks]
    return read(CanaryStep, row, hits_judged_at=row.began_at + timedelta(seconds=warming), looks=said)
