"""Rollups of whole pools, and the history of the instances wanted, for charts.

What is there of the last day, and of the last two hours in steps of ten seconds, is rolled up here; older days are not.

Revision: 0042_pool_rollups
Revises: 0041_asked_routers
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0042_pool_rollups"
down_revision = "0041_asked_routers"
branch_labels = None
depends_on = None

GAUGES = ("running", "waiting", "pending_prefill_tokens")
SUMS = (
    "requests_total",
    "completed",
    "failed_total",
    "cancelled",
    "prompt_tokens",
    "hit_tokens",
    "output_tokens",
    "ttft_within_slo",
    "ttft_total",
    "tpot_within_slo",
    "tpot_total",
    "within_slo",
    "judged_by_slo",
    "generated_tokens",
)
TABLES = ("pool_rollups_10s", "pool_rollups_1m", "pool_rollups_1h")


def upgrade() -> None:
    for name in TABLES:
        counts: list[sa.Column[Any]] = [sa.Column(total, sa.BigInteger(), server_default="0", nullable=False) for total in SUMS]
        gauges: list[sa.Column[Any]] = [sa.Column(gauge, sa.Double(), nullable=True) for gauge in GAUGES]
        op.create_table(
            name,
            sa.Column("pool_id", sa.Integer(), nullable=False),
            sa.Column("bucket", sa.DateTime(timezone=True), nullable=False),
            sa.Column("seconds", sa.Integer(), nullable=False),
            sa.Column("instance_seconds", sa.BigInteger(), nullable=False),
            *gauges,
            sa.Column("kv_usage_sum", sa.Double(), nullable=True),
            sa.Column("kv_usage_n", sa.BigInteger(), nullable=False),
            *counts,
            sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f(f"fk_{name}_pool_id")),
            sa.PrimaryKeyConstraint("pool_id", "bucket", name=op.f(f"pk_{name}")),
        )
    op.create_table(
        "wanted_replicas",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("before", sa.BigInteger(), nullable=True),
        sa.Column("replicas", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_wanted_replicas_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "role", "at", name=op.f("pk_wanted_replicas")),
    )
    op.execute(
        "INSERT INTO wanted_replicas (pool_id, role, at, replicas) SELECT p.id, w.key, now(), CAST(w.value AS bigint) "
        "FROM pools p, jsonb_each_text(p.desired) w WHERE p.deleted_at IS NULL AND jsonb_typeof(p.desired) = 'object'"
    )
    op.execute(_pooled("pool_rollups_10s", "load_rollups_10s", 10, "2 hours"))
    op.execute(_pooled("pool_rollups_1m", "load_rollups_1m", 60, "1 day"))
    names = ("seconds", "instance_seconds", *GAUGES, "kv_usage_sum", "kv_usage_n", *SUMS)
    op.execute(
        f"INSERT INTO pool_rollups_1h (pool_id, bucket, {', '.join(names)}) "  # noqa: S608 (constants of this file)
        f"SELECT pool_id, date_trunc('hour', bucket), {', '.join(f'sum({name})' for name in names)} FROM pool_rollups_1m GROUP BY 1, 2"
    )


def _pooled(target: str, source: str, seconds: int, span: str) -> str:
    columns = ("seconds", "instance_seconds", *GAUGES, "kv_usage_sum", "kv_usage_n", *SUMS)
    gauges = (f"sum({gauge}_sum / nullif({gauge}_n, 0)) * {seconds}" for gauge in GAUGES)
    values = (f"{seconds}", f"count(*) * {seconds}", *gauges, "sum(kv_usage_sum)", "sum(kv_usage_n)", *(f"sum({total})" for total in SUMS))
    return (
        f"INSERT INTO {target} (pool_id, bucket, {', '.join(columns)}) SELECT pool_id, bucket, {', '.join(values)} "  # noqa: S608 (constants of this file)
        f"FROM {source} WHERE bucket >= now() - interval '{span}' GROUP BY pool_id, bucket"
    )


def downgrade() -> None:
    op.drop_table("wanted_replicas")
    for name in reversed(TABLES):
        op.drop_table(name)
