"""The table with the outcome of each start of a schedule's window."""

from sqlalchemy import BigInteger, Column, Identity, Index, Table, UniqueConstraint

from fairlead_api.infra.columns import metadata, pool_column, text_column, time_column

schedule_runs = Table(
    "schedule_runs",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    pool_column(),
    text_column("uid"),
    text_column("schedule"),
    time_column("start"),
    time_column("closes", null=True),
    text_column("outcome"),
    text_column("reason", null=True),
    text_column("overruled_by", null=True),
    time_column("opened_at", null=True),
    time_column("closed_at", null=True),
    UniqueConstraint("pool_id", "uid", "schedule", "start"),
    Index(None, "pool_id", "schedule", "start"),
    Index(None, "start", "id"),
)
