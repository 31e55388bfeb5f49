"""Rollups of whole pools, and the history of the instances wanted, for charts.

What is there of the last day, and of the last two hours in steps of ten seconds, is rolled up here, by pool and hour;
older days are not.

Revision: 0042_pool_rollups
Revises: 0041_asked_routers
"""

from collections.abc import Iterable
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
COLUMNS = ("seconds", "instance_seconds", *GAUGES, "kv_usage_sum", "kv_usage_n", *SUMS)
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
            if_not_exists=True,  # a try before this one may have made it, and been stopped as it filled it
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
        if_not_exists=True,
    )
    op.execute(
        "INSERT INTO wanted_replicas (pool_id, role, at, replicas) SELECT p.id, w.key, now(), CAST(w.value AS bigint) "
        "FROM pools p, jsonb_each_text(p.desired) w WHERE p.deleted_at IS NULL AND jsonb_typeof(p.desired) = 'object' "
        "AND NOT EXISTS (SELECT FROM wanted_replicas known WHERE known.pool_id = p.id)"
    )
    with op.get_context().autocommit_block():  # the tables' foreign keys keep writers from pools until they are committed
        pools = [pool for (pool,) in op.get_bind().execute(sa.text("SELECT id FROM pools WHERE deleted_at IS NULL"))]
        _fill(pools, _pooled("pool_rollups_10s", "load_rollups_10s", 10), 2)
        _fill(pools, _pooled("pool_rollups_1m", "load_rollups_1m", 60), 24)
        _fill(pools, _hours(), 24)


def _fill(pools: Iterable[int], statement: str, hours: int) -> None:
    """One pool and hour a transaction; what a try before this one made stays."""
    for pool in pools:
        for ago in range(hours + 1):
            op.get_bind().execute(sa.text(statement), {"pool": pool, "ago": ago})


def _pooled(target: str, source: str, seconds: int) -> str:
    gauges = (f"sum({gauge}_sum / nullif({gauge}_n, 0)) * {seconds}" for gauge in GAUGES)
    values = (f"{seconds}", f"count(*) * {seconds}", *gauges, "sum(kv_usage_sum)", "sum(kv_usage_n)", *(f"sum({total})" for total in SUMS))
    return _insert(target, "bucket", values, source)


def _hours() -> str:
    return _insert("pool_rollups_1h", "date_bin('1 hour', bucket, 'epoch')", (f"sum({name})" for name in COLUMNS), "pool_rollups_1m")


def _insert(target: str, bucket: str, values: Iterable[str], source: str) -> str:
    return (
        f"INSERT INTO {target} (pool_id, bucket, {', '.join(COLUMNS)}) SELECT pool_id, {bucket}, {', '.join(values)} "  # noqa: S608 (constants of this file)
        f"FROM {source} WHERE pool_id = :pool AND bucket >= date_trunc('hour', now()) - make_interval(hours => :ago) "
        "AND bucket < date_trunc('hour', now()) - make_interval(hours => :ago - 1) GROUP BY 1, 2 ON CONFLICT DO NOTHING"
    )


def downgrade() -> None:
    op.drop_table("wanted_replicas")
    for name in reversed(TABLES):
        op.drop_table(name)
