"""Simulations for people, plans and advice; those at work are claimed by one API process at a time."""

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, Table, Text, text

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
"""`trace` is the uploaded one, as compressed JSON. `runner` is who claimed it, `heard_at` when that was heard last.
`plan` is whose effect it finds, `plan_runs` are its runs and `trialled` what they found; None for one that a person
asked for. `sizing` is what advice looks for and `sized` what was found. Such a row's `plan` is its own id: a process of
a former release takes it for a plan's and harms nothing.
"""

engine_fits = Table(
    "engine_fits",
    metadata,
    pool_column(primary_key=True),
    time_column("stored_at"),
    text_column("stored_by"),
    json_column("fit"),
)
"""The engine fitted to a pool's requests, by which the pool is simulated."""
