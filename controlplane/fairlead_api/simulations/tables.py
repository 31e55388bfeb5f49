"""Tables of recorded requests, of simulations for people, plans and advice, and of fitted engine models."""

from sqlalchemy import (
    REAL,
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from fairlead_api.infra.columns import count_column, json_column, metadata, pool_column, text_column, time_column

AT_WORK = "state IN ('queued', 'running')"

simulations = Table(
    "simulations",
    metadata,
    Column("id", Text, primary_key=True),
    pool_column(),
    text_column("state"),
    time_column("created_at"),
    text_column("created_by"),
    json_column("policies"),
    json_column("rates"),
    Column("seed", BigInteger, nullable=False),
    json_column("target"),
    time_column("start", null=True),
    time_column("end", null=True),
    Column("trace", LargeBinary),
    Column("total", BigInteger, nullable=False),
    count_column("done"),
    count_column("attempts"),
    text_column("runner", null=True),
    time_column("heard_at", null=True),
    time_column("started_at", null=True),
    time_column("finished_at", null=True),
    text_column("error", null=True),
    json_column("results", null=True),
    Column("winner", Integer),
    json_column("notes", null=True),
    text_column("plan", null=True),
    json_column("plan_runs", null=True),
    json_column("trialled", null=True),
    json_column("sizing", null=True),
    json_column("sized", null=True),
    Index(None, "pool_id", "created_at", "id"),
    Index("uq_simulations_asked_at_work", "pool_id", unique=True, postgresql_where=text(f"{AT_WORK} AND plan IS NULL")),
    Index("uq_simulations_sizing_at_work", "pool_id", unique=True, postgresql_where=text(f"{AT_WORK} AND sizing IS NOT NULL")),
    Index("uq_simulations_plan", "plan", unique=True, postgresql_where=text("plan IS NOT NULL")),
)
"""Simulations. `trace` is the uploaded trace, as compressed JSON. `runner` is the process that claimed the simulation,
`heard_at` the time of its last report. `plan` is the plan whose effect is simulated, `plan_runs` are the runs of that
simulation and `trialled` their results; all three are None for a simulation that a person requested. `sizing` is the
question of a simulation for advice, and `sized` its result.

In a simulation for advice, `plan` is the simulation's own id. A process of an earlier release therefore treats the
simulation as a plan's simulation, which does no harm because no plan has this id.
"""

engine_fits = Table(
    "engine_fits",
    metadata,
    pool_column(primary_key=True),
    time_column("stored_at"),
    text_column("stored_by"),
    json_column("fit"),
)
"""The engine model that was fitted to a pool's requests and is used to simulate the pool."""

recorded_requests = Table(
    "recorded_requests",
    metadata,
    pool_column(),
    text_column("router"),
    time_column("at"),
    Column("session", BigInteger),
    count_column("prompt_tokens"),
    Column("output_tokens", BigInteger),
    Column("blocks", ARRAY(BigInteger), nullable=False),
    Column("sample_rate", REAL, nullable=False),
    text_column("instance", null=True),
    Column("rank", Integer),
    Column("sent_seconds", REAL),
    Column("ttft_seconds", REAL),
    Column("answer_seconds", REAL),
    Column("engine_prompt_tokens", BigInteger),
    Column("cached_tokens", BigInteger),
    Column("ended_seconds", REAL),
    *(text_column(name, null=True) for name in ("outcome", "rejection", "decision", "tenant", "task", "tool")),
    Column("window_number", Integer),
    Index(None, "pool_id", "at"),
    Index(None, "session", "at"),
    postgresql_partition_by="RANGE (at)",
)
"""Recorded requests, used for simulations and as turns of `session_trees`. They contain lengths and hashes, but no text
and no session's name.
"""
