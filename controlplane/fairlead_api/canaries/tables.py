"""Tables of canaries: their requests by UTC day, their steps, and the judgements over time."""

from sqlalchemy import BigInteger, Boolean, Column, DateTime, Double, Index, Table, Text, text

from fairlead_api.infra.columns import class_column, count_column, json_column, metadata, pool_column, text_column, time_column

canary_samples = Table(
    "canary_samples",
    metadata,
    pool_column(),
    text_column("router"),
    time_column("at"),
    text_column("step"),
    text_column("session"),
    Column("canary", Boolean, nullable=False),
    class_column(),
    count_column("prompt_tokens"),
    count_column("hit_tokens"),
    Column("cached_tokens", BigInteger),
    count_column("decoding"),
    *(Column(name, Double) for name in ("ttft_seconds", "tpot_seconds")),
    count_column("output_tokens"),
    Column("failed", Boolean, nullable=False),
    Index(None, "pool_id", "step", "at"),
    postgresql_partition_by="RANGE (at)",
)

canary_steps = Table(
    "canary_steps",
    metadata,
    pool_column(primary_key=True),
    Column("step", Text, primary_key=True),
    Column("share", Double, nullable=False),
    json_column("rules"),
    time_column("began_at"),
    time_column("ended_at", null=True),
    Index("ix_canary_steps_open", "pool_id", postgresql_where=text("ended_at IS NULL")),
)
"""Steps of canaries. `began_at` is the time from which sessions could go to the step's new revision."""

canary_looks = Table(
    "canary_looks",
    metadata,
    pool_column(primary_key=True),
    Column("step", Text, primary_key=True),
    Column("at", DateTime(timezone=True), primary_key=True),
    text_column("verdict"),
    json_column("judgement"),
)
