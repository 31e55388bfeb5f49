"""Simulations that nobody asked for in Postgres: of plans, and of pools that miss their objectives."""

from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import delete, func, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra.pool_rows import pool_row
from fairlead_api.simulations.expectations import KeptSizing, PlanTrial
from fairlead_api.simulations.sizing import SizingTrial
from fairlead_api.simulations.store.simulations import PostgresSimulations
from fairlead_api.simulations.store.sized import kept_sizing
from fairlead_client.resources.simulations import SimulationState

runs = tables.simulations

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
    """What the rows of all simulations hold that nobody asked for."""
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
