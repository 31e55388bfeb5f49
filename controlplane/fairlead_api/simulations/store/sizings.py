"""Stores automatic simulations in Postgres: for plans, and for pools that miss their objectives. Also reads the results
of simulations for advice. Advice, lists of refusals and plans use these results.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import delete, func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.advice.situations import SeenSizing
from fairlead.scaling.remedies import Simulated
from fairlead.tables import PoolKey, SloFacts
from fairlead_api import tables
from fairlead_api.infra.pool_rows import pool_row
from fairlead_api.simulations.expectations import KeptSizing, PlanTrial
from fairlead_api.simulations.expected_figures import Trialled
from fairlead_api.simulations.sizing import Asked, SizingTrial
from fairlead_api.simulations.store.simulations import PostgresSimulations
from fairlead_client.resources.simulations import SimulationState
from fairlead_client.simulation_jobs import JobRun

runs = tables.simulations

USEFUL_SECONDS = 1200
"""Age in seconds above which the result of a simulation for advice says nothing about the present."""
_NEWEST = text(f"""
SELECT DISTINCT ON (pool_id) pool_id, state, error, sizing, extract(epoch FROM CAST(:now AS timestamptz) - created_at) AS age
FROM simulations WHERE pool_id = ANY(:pools) AND sizing IS NOT NULL
AND created_at > CAST(:now AS timestamptz) - interval '{USEFUL_SECONDS} seconds' ORDER BY pool_id, created_at DESC
""")  # noqa: S608 (a number of this module's own)
_FOUND = text(f"""
SELECT DISTINCT ON (pool_id) pool_id, sized, extract(epoch FROM CAST(:now AS timestamptz) - created_at) AS age
FROM simulations WHERE pool_id = ANY(:pools) AND sized IS NOT NULL AND state = 'done'
AND created_at > CAST(:now AS timestamptz) - interval '{USEFUL_SECONDS} seconds' ORDER BY pool_id, created_at DESC
""")  # noqa: S608


async def sizings(connection: AsyncConnection, pools: dict[int, SloFacts], now: datetime) -> dict[int, SeenSizing]:
    """Return, for each pool, the newest simulation for advice. Also return the result of the newest finished simulation
    for advice, compared with the pool's present targets.
    """
    values = {"pools": list(pools), "now": now}
    found = {row.pool_id: row for row in await connection.execute(_FOUND, values)}
    return {row.pool_id: _seen(row, found.get(row.pool_id), pools[row.pool_id]) for row in await connection.execute(_NEWEST, values)}


async def newest_found(connection: AsyncConnection, pools: Collection[int], now: datetime) -> dict[int, Simulated]:
    """Return, for each pool, the result of its newest finished simulation for advice."""
    rows = await connection.execute(_FOUND, {"pools": sorted(pools), "now": now}) if pools else ()
    return {row.pool_id: msgspec.convert(row.sized, Simulated) for row in rows}


def _seen(row: Any, done: Any, slo: SloFacts) -> SeenSizing:
    asked = msgspec.convert(row.sizing, Asked)
    sized = None if done is None else msgspec.convert(done.sized, Simulated)
    if sized is not None and (sized.ttft_seconds, sized.tpot_seconds, sized.goal) != _targets(slo):
        sized = None
    return SeenSizing(
        role=asked.role,
        age_seconds=max(0.0, float(row.age)),
        is_underway=row.state in (SimulationState.QUEUED, SimulationState.RUNNING),
        reason=row.error,
        estimate=asked.estimate,
        found=sized,
        found_seconds=0.0 if sized is None else max(0.0, float(done.age)),
    )


def _targets(slo: SloFacts) -> tuple[float, float, float]:
    return slo.ttft_seconds, slo.tpot_seconds, slo.percentile / 100


async def kept_sizing(connection: AsyncConnection, pool_id: int, simulation: str) -> KeptSizing | None:
    """Return the finished simulation for advice with the id `simulation`; None if there is none."""
    of_it = (runs.c.id == simulation, runs.c.pool_id == pool_id, runs.c.sized.is_not(None))
    row = (await connection.execute(select(runs).where(*of_it))).one_or_none()
    if row is None:
        return None
    sized, made = msgspec.convert(row.sized, Simulated), msgspec.convert(row.plan_runs, list[JobRun])
    return KeptSizing(
        asked=msgspec.convert(row.sizing, Asked),
        start=row.start,
        end=row.end,
        runs=made,
        found=msgspec.convert(row.trialled, Trialled),
        requests=sized.requests,
        notes=row.notes or [],
    )


AUTHOR = "advice"
_KEPT = text("interval '1 hour'")


class PostgresSizings(PostgresSimulations):
    """Implements `advice.sizing.SizingStore`, and `simulations.expectations.ExpectationStore`."""

    async def advised_by(self, pool: PoolKey, simulation: str) -> KeptSizing | None:
        async with self._database.reading() as connection:
            return await kept_sizing(connection, (await pool_row(connection, pool)).id, simulation)

    async def add_trial(self, trial: PlanTrial, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            row = await pool_row(connection, trial.pool)
            await connection.execute(
                insert(runs).values(
                    **_values(trial, row.id, now),
                    state=_state(trial),
                    created_by=trial.created_by,
                    plan=trial.plan,
                    trialled=None if trial.found is None else msgspec.to_builtins(trial.found),
                    notes=list(trial.notes),
                    done=trial.total if trial.found is not None else 0,
                )
            )

        await self._database.writing(work)

    async def add_sizing(self, trial: SizingTrial, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            row = await pool_row(connection, trial.pool)
            mine = (runs.c.pool_id == row.id, runs.c.sizing.is_not(None))
            await connection.execute(delete(runs).where(*mine, runs.c.created_at < func.now() - _KEPT))
            new = insert(runs).values(
                **_values(trial, row.id, now),
                state=SimulationState.QUEUED if trial.refusal is None else SimulationState.FAILED,
                created_by=AUTHOR,
                plan=trial.id,
                sizing=msgspec.to_builtins(trial.asked),
            )
            await connection.execute(new.on_conflict_do_nothing())

        await self._database.writing(work)


def _values(trial: PlanTrial | SizingTrial, pool_id: int, now: datetime) -> dict[str, Any]:
    """Return the values of the columns that all automatic simulations have in common."""
    return {
        "id": trial.id,
        "pool_id": pool_id,
        "error": trial.refusal,
        "created_at": now,
        "policies": [],
        "rates": [],
        "seed": 0,
        "target": {} if trial.target is None else msgspec.to_builtins(trial.target),
        "start": trial.window[0],
        "end": trial.window[1],
        "total": trial.total,
        "plan_runs": msgspec.to_builtins(trial.runs),
    }


def _state(trial: PlanTrial) -> SimulationState:
    if trial.refusal is not None:
        return SimulationState.FAILED
    return SimulationState.QUEUED if trial.found is None else SimulationState.DONE
