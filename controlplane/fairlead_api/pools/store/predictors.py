"""Prediction models that routers trained, stored in versions per pool. Only the newest few versions keep their
content.
"""

from datetime import datetime

import msgspec
from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.reports.predictors import ModelFigures, SharedModel, TrainedModel
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.table_content import MirroredFacts
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra.database import Database, moment
from fairlead_api.infra.pool_rows import pool_row
from fairlead_client.resources.predictors import Predictor, PredictorModel

CONTENTS_KEPT = 3
SHOWN = 100

models = tables.predictor_models


class PostgresPredictors:
    """Stores the prediction models that routers trained, and reads their figures."""

    def __init__(self, database: Database, policies: PolicyCatalogue) -> None:
        self._database = database
        self._policies = policies

    async def store(self, model: TrainedModel, now: datetime) -> None:
        """Store a prediction model as the pool's next version. A model that is sent again is stored once. Raises
        NotFound.
        """

        async def work(connection: AsyncConnection) -> None:
            pool = (await pool_row(connection, model.pool)).id
            await connection.execute(select(tables.pools.c.id).where(tables.pools.c.id == pool).with_for_update())
            newest = select(func.coalesce(func.max(models.c.version), 0)).where(models.c.pool_id == pool)
            version = 1 + int((await connection.execute(newest)).scalar_one())
            row = upsert(models).values(
                pool_id=pool,
                version=version,
                model=model.id,
                at=min(moment(model.at), now),
                figures=msgspec.to_builtins(model.figures),
                content=model.content,
            )
            await connection.execute(row.on_conflict_do_nothing(index_elements=["pool_id", "model"]))
            old = (models.c.pool_id == pool) & (models.c.version <= version - CONTENTS_KEPT) & models.c.content.is_not(None)
            await connection.execute(update(models).where(old).values(content=None))

        await self._database.writing(work)

    async def newest(self, pool: PoolKey) -> SharedModel:
        """Return the newest prediction model whose content is stored; an empty model if the pool has none. Raises
        NotFound for an unknown pool.
        """
        async with self._database.reading() as connection:
            key = (await pool_row(connection, pool)).id
            query = select(models.c.version, models.c.content).where(models.c.pool_id == key, models.c.content.is_not(None))
            row = (await connection.execute(query.order_by(models.c.version.desc()).limit(1))).one_or_none()
        return SharedModel() if row is None else SharedModel(version=row.version, content=row.content)

    async def predictor(self, pool: PoolKey) -> Predictor:
        """Return the figures of the pool's newest prediction models, newest first. Raises NotFound."""
        size = func.length(models.c.content).label("stored_bytes")
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(models.c.version, models.c.at, models.c.figures, size).where(models.c.pool_id == row.id)
            found = (await connection.execute(query.order_by(models.c.version.desc()).limit(SHOWN))).all()
        routing = msgspec.convert(row.facts, MirroredFacts).table.routing if row.facts else None
        return Predictor(
            pool=str(pool),
            policy="" if routing is None else routing.policy,
            learns=routing is not None and self._policies.learns(routing),
            models=[
                PredictorModel(
                    version=one.version, at=one.at, figures=msgspec.convert(one.figures, ModelFigures), stored_bytes=one.stored_bytes
                )
                for one in found
            ],
        )
