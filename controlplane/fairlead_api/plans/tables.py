"""The table of plans."""

from sqlalchemy import Column, Index, Table, Text, text

from fairlead_api.infra.columns import count_column, json_column, metadata, pool_column, text_column, time_column

plans = Table(
    "plans",
    metadata,
    Column("id", Text, primary_key=True),
    pool_column(),
    text_column("kind"),
    time_column("created_at"),
    text_column("created_by"),
    time_column("expires_at"),
    text_column("state"),
    text_column("uid"),
    count_column("generation", None),
    json_column("object"),
    json_column("change"),
    json_column("inverse"),
    json_column("diff"),
    json_column("effect"),
    text_column("owner", null=True),
    text_column("patch"),
    text_column("reason", null=True),
    time_column("applied_at", null=True),
    text_column("applied_by", null=True),
    count_column("applied_generation"),
    time_column("undo_until", null=True),
    text_column("undo_of", null=True),
    json_column("seen", null=True),
    time_column("begun_at", null=True),
    json_column("begun", null=True),
    json_column("proposal", null=True),
    Index(None, "pool_id", "created_at"),
    Index("ix_plans_waiting", "created_at", postgresql_where=text("state = 'open' AND proposal IS NOT NULL")),
    Index(None, "created_at", "id"),
)
