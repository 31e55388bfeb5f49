"""The table of models that routers trained."""

from sqlalchemy import BigInteger, Column, Identity, Index, Integer, LargeBinary, Table, UniqueConstraint

from fairlead_api.infra.columns import json_column, metadata, pool_column, text_column, time_column

predictor_models = Table(
    "predictor_models",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    pool_column(),
    Column("version", Integer, nullable=False),
    text_column("model"),
    time_column("at"),
    json_column("figures"),
    Column("content", LargeBinary, nullable=True),
    UniqueConstraint("pool_id", "version"),
    UniqueConstraint("pool_id", "model"),
    Index(None, "at", "id"),
)
