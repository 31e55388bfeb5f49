"""Tables of sampled routing decisions, and of sessions for which every decision is kept."""

from sqlalchemy import Column, Double, Index, Integer, PrimaryKeyConstraint, Table, Text, text

from fairlead_api.infra.columns import class_column, count_column, json_column, metadata, pool_column, text_column, time_column

decisions = Table(
    "decisions",
    metadata,
    text_column("id"),
    pool_column(),
    text_column("request"),
    text_column("session", null=True),
    time_column("at"),
    time_column("recorded_at", now=True),
    text_column("router"),
    text_column("policy"),
    count_column("table_version"),
    text_column("chosen"),
    text_column("runner_up", null=True),
    text_column("reason"),
    count_column("prompt_tokens"),
    Column("queued_seconds", Double),
    Column("held_seconds", Double),
    Column("ttft_seconds", Double),
    Column("sample_rate", Double, nullable=False),
    json_column("candidates"),
    json_column("weighing", null=True),
    text_column("served_by", null=True),
    text_column("decode", null=True),
    class_column(),
    text_column("named", null=True),
    *(Column(name, Integer) for name in ("chosen_rank", "runner_up_rank", "served_by_rank", "decode_rank")),
    *(text_column(name, null=True) for name in ("kept", "outcome", "rejection", "client_request")),
    *(Column(name, Double) for name in ("tpot_seconds", "ttft_target_seconds", "tpot_target_seconds")),
    json_column("attempts", null=True),
    json_column("continuations", null=True),
    text_column("trace", null=True),
    json_column("shadows", null=True),
    PrimaryKeyConstraint("id", "at"),
    Index(None, "at", "id"),
    Index(None, "pool_id", "at"),
    Index("ix_decisions_shadowed", "pool_id", "at", postgresql_where=text("shadows IS NOT NULL")),
    Index(None, "session", "at"),
    Index(None, "request", "at"),
    Index(None, "client_request", "at"),
    Index(None, "trace", "at"),
    Index(None, "chosen", "at"),
    Index(None, "reason", "at"),
    Index(None, "recorded_at"),
    postgresql_partition_by="RANGE (at)",
)

kept_sessions = Table(
    "kept_sessions",
    metadata,
    pool_column(primary_key=True),
    Column("session", Text, primary_key=True),
    time_column("until"),
    text_column("by"),
)
"""Sessions for which every decision is kept: each with the time until which this continues, and the person who
requested it.
"""
