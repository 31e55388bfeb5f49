"""Columns of heatmaps: all instances of a pool in one row, so that a page reads 360 rows and not 180,000.

What is there of the last day by minutes, and of the last three hours by ten seconds, gets its columns here, an hour at a
time. Older ones, and those that the release before rolls up while it still runs, are read from rollups as before.

Revision: 0051_heatmap_columns
Revises: 0048_begun_plans
"""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0051_heatmap_columns"
down_revision = "0050_cluster_changes"
branch_labels = None
depends_on = None

METRICS = (
    "pending_prefill_tokens",
    "running",
    "waiting",
    "in_flight",
    "kv_usage",
    "ttft_p95",
    "tpot_p95",
    "hit_rate",
    "requests",
    "failed",
)
PARTS = ("max", "sum", "n")
NAMES = ", ".join(f"{metric}_{part}" for metric in METRICS for part in PARTS)


def upgrade() -> None:
    lists: list[sa.Column[Any]] = [sa.Column(f"{metric}_{part}", sa.JSON(), nullable=True) for metric in METRICS for part in PARTS]
    op.create_table(
        "heatmap_columns",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("bucket", sa.DateTime(timezone=True), nullable=False),
        sa.Column("roster", sa.Text(), nullable=False),
        sa.Column("instances", sa.JSON(), nullable=False),
        *lists,
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_heatmap_columns_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "step", "bucket", name=op.f("pk_heatmap_columns")),
        if_not_exists=True,  # a try before this one may have made it, and been stopped as it filled it
    )
    op.create_index(op.f("ix_heatmap_columns_step_bucket"), "heatmap_columns", ["step", "bucket"], if_not_exists=True)
    with op.get_context().autocommit_block():
        pools = [pool for (pool,) in op.get_bind().execute(sa.text("SELECT id FROM pools WHERE deleted_at IS NULL"))]
        for step, table, hours in ((10, "load_rollups_10s", 3), (60, "load_rollups_1m", 24), (300, "load_rollups_1m", 24)):
            _fill(pools, step, table, hours)


def _fill(pools: Iterable[int], step: int, table: str, hours: int) -> None:
    """Columns of whole hours, one pool and hour a transaction; what a try before this one made stays."""
    merged = ", ".join(
        f"max({metric}_max) AS {metric}_max, sum({metric}_sum) AS {metric}_sum, sum({metric}_n) AS {metric}_n" for metric in METRICS
    )
    lists = ", ".join(
        f"CASE WHEN count({metric}_max) > 0 THEN array_to_json(array_agg({metric}_{part} ORDER BY instance)) END AS {metric}_{part}"
        for metric in METRICS
        for part in PARTS
    )
    statement = sa.text(
        f"INSERT INTO heatmap_columns (pool_id, step, bucket, roster, instances, {NAMES}) "  # noqa: S608 (constants of this file)
        f"SELECT :pool, :step, at, md5(CAST(instances AS text)), instances, {NAMES} FROM ("
        f"SELECT at, array_to_json(array_agg(instance ORDER BY instance)) AS instances, {lists} FROM ("
        f"SELECT date_bin(CAST(:width AS interval), bucket, 'epoch') AS at, instance, {merged} FROM {table} "
        "WHERE pool_id = :pool AND bucket >= date_trunc('hour', now()) - make_interval(hours => :ago) "
        "AND bucket < least(date_trunc('hour', now()) - make_interval(hours => :ago - 1), now() - interval '10 minutes') GROUP BY 1, 2"
        ") cells GROUP BY at) made ON CONFLICT DO NOTHING"
    )
    for pool in pools:
        for ago in range(hours + 1):
            op.get_bind().execute(statement, {"pool": pool, "step": step, "width": f"{step} seconds", "ago": ago})


def downgrade() -> None:
    op.drop_table("heatmap_columns")
