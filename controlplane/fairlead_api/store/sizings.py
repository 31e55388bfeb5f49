"""Simulations for advice in Postgres: queued for pools that miss their objectives."""

from datetime import datetime

import msgspec
from sqlalchemy import delete, func, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.tables import PoolKey
from fairlead_api.services.advice.sizing import SizingTrial
from fairlead_api.services.simulations.expectations import KeptSizing
from fairlead_api.store import tables
from fairlead_api.store.pools.rows import pool_row
from fairlead_api.store.simulations import PostgresSimulations
from fairlead_api.store.sized import kept_sizing
from fairlead_client.resources.simulations import SimulationState

runs = tables.simulations

AUTHOR = "advice"
_KEPT = text("interval '1 hour'")


class PostgresSizings(PostgresSimulations):
    """Implements `services.advice.sizing.SizingStore`, and `services.simulations.expectations.ExpectationStore`."""

    async def advised_by(self, pool: PoolKey, simulation: str) -> KeptSizing | None:
        async with self._database.reading() as connection:
            return await kept_sizing(connection, (await pool_row(connection, pool)).id, simulation)

    async def add_sizing(self, trial: SizingTrial, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            row = await pool_row(connection, trial.pool)
            mine = (runs.c.pool_id == row.id, runs.c.sizing.is_not(None))
            await connection.execute(delete(runs).where(*mine, runs.c.created_at < func.now() - _KEPT))
            new = insert(runs).values(
                id=trial.id,
                pool_id=row.id,
                state=SimulationState.QUEUED if trial.refusal is None else SimulationState.FAILED,
                error=trial.refusal,
                created_at=now,
                created_by=AUTHOR,
                policies=[],
                rates=[],
                seed=0,
                target={} if trial.target is None else msgspec.to_builtins(trial.target),
                start=trial.window[0],
                end=trial.window[1],
                total=trial.total,
                plan=trial.id,
                plan_runs=msgspec.to_builtins(trial.runs),
                sizing=msgspec.to_builtins(trial.asked),
            )
            await connection.execute(new.on_conflict_do_nothing())

        await self._database.writing(work)
