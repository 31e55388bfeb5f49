"""Stores fitted engine models in Postgres, one per pool, and reads the recorded requests to which they are fitted."""

from datetime import datetime, timedelta

import msgspec
from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.table_content import MirroredFacts
from fairlead.tables import PoolKey
from fairlead.targets import target_of
from fairlead_api import tables
from fairlead_api.infra import audit_log
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.database import Database
from fairlead_api.infra.pool_rows import pool_row
from fairlead_client.resources.engine_fits import EngineFit, PoolEngine, ServedRequest, ServedRequests
from fairlead_client.resources.simulations import EngineModel

fits, requests = tables.engine_fits, tables.recorded_requests


class PostgresEngineFits:
    """The database's fitted engine models. Methods raise NotFound for a pool that does not exist."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def engine(self, pool: PoolKey) -> PoolEngine:
        async with self._database.reading() as connection:
            return await _engine(connection, pool)

    async def store(self, pool: PoolKey, fit: EngineFit | None, draft: AuditDraft, now: datetime) -> PoolEngine:
        """Replace the pool's fitted engine model; with None, remove it."""

        async def work(connection: AsyncConnection) -> PoolEngine:
            row = await pool_row(connection, pool)
            if fit is None:
                await connection.execute(delete(fits).where(fits.c.pool_id == row.id))
            else:
                values = {"stored_at": now, "stored_by": draft.actor, "fit": msgspec.to_builtins(fit)}
                added = upsert(fits).values(pool_id=row.id, **values)
                await connection.execute(added.on_conflict_do_update(index_elements=["pool_id"], set_=values))
            await audit_log.append(connection, [draft], now)
            return await _engine(connection, pool)

        return await self._database.writing(work)

    async def served(self, pool: PoolKey, start: datetime, end: datetime, most: int) -> ServedRequests:
        """Return the newest requests that were recorded from `start` to `end`: at most `most`, oldest first."""
        c = requests.c
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            within = (c.pool_id == row.id, c.at >= start, c.at < end)
            known = (c.ttft_seconds.is_not(None), c.output_tokens > 0)
            newest = select(requests).where(*within, *known).order_by(c.at.desc()).limit(most)
            rows = (await connection.execute(newest)).all()
            since = min((one.at for one in rows), default=start)
            unknown = select(func.count()).where(*within, c.at >= since, c.output_tokens > 0, c.ttft_seconds.is_(None))
            others = int((await connection.execute(unknown)).scalar_one())
        items = [
            ServedRequest(
                at=one.at + timedelta(seconds=one.sent_seconds or 0.0),
                engine=target_of(one.instance, one.rank),
                prompt_tokens=one.engine_prompt_tokens or one.prompt_tokens,
                cached_tokens=min(one.cached_tokens or 0, one.engine_prompt_tokens or one.prompt_tokens),
                output_tokens=one.output_tokens,
                ttft_seconds=one.ttft_seconds,
                answer_seconds=one.answer_seconds,
            )
            for one in rows
        ]
        return ServedRequests(
            pool=str(pool),
            items=sorted(items, key=lambda one: one.at),
            sample_rate=min((one.sample_rate for one in rows), default=1.0),
            unknown=others,
        )


async def _engine(connection: AsyncConnection, pool: PoolKey) -> PoolEngine:
    row = await pool_row(connection, pool)
    found = (await connection.execute(select(fits).where(fits.c.pool_id == row.id))).one_or_none()
    is_simulated = row.facts is not None and msgspec.convert(row.facts, MirroredFacts).table.engine.type == "simulated"
    return PoolEngine(
        pool=str(pool),
        engine=(EngineModel.SIMULATED if is_simulated else EngineModel.VLLM_8B).value,
        is_simulated=is_simulated,
        fit=None if found is None else msgspec.convert(found.fit, EngineFit),
        stored_at=None if found is None else found.stored_at,
        stored_by=None if found is None else found.stored_by,
    )
