"""Adds the data for costs: when each instance lived, prices per role, and by hour the busy time of roles and the usage
by key and priority class.

For the time before this revision, only instances that still exist have a life, and there are no prices.

Revision: 0074_costs Revises: 0073_canaries
"""

import sqlalchemy as sa
from alembic import op

revision = "0074_costs"
down_revision = "0073_canaries"
branch_labels = None
depends_on = None

_USED = ("requests", "prefill_tokens", "hit_tokens", "output_tokens")


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def _pool() -> sa.Column[int]:
    return sa.Column("pool_id", sa.Integer, sa.ForeignKey("pools.id"), primary_key=True)


def _time(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), primary_key=True)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, primary_key=True)


def upgrade() -> None:
    op.create_table(
        "instance_lives",
        _pool(),
        _text("pod"),
        _time("began_at"),
        sa.Column("instance", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
    )
    op.create_index("ix_instance_lives_pool_id_ended_at", "instance_lives", ["pool_id", "ended_at"])
    op.create_table(
        "instance_prices",
        _pool(),
        _text("role"),
        _time("since"),
        sa.Column("micros_per_hour", sa.BigInteger),
        sa.Column("currency", sa.Text, nullable=False),
    )
    op.create_table("work_hours", _pool(), _time("bucket"), _text("role"), _count("busy_milliseconds"), _count("prefilling_milliseconds"))
    op.create_table("usage_hours", _pool(), _time("bucket"), _text("key_id"), _text("priority_class"), *map(_count, _USED))
    op.create_index("ix_usage_hours_key_id_bucket", "usage_hours", ["key_id", "bucket"])
    op.create_table("session_usage_hours", _pool(), _time("bucket"), _text("session"), *map(_count, _USED))
    for table in ("load_rollups_10s", "load_rollups_1m"):
        op.add_column(table, _count("busy_seconds"))
        op.add_column(table, sa.Column("prefilling_seconds", sa.Double, nullable=False, server_default="0"))
    op.execute(
        "INSERT INTO instance_lives (pool_id, pod, began_at, instance, role, ended_at) "
        "SELECT pool_id, coalesce(nullif(pod_uid, ''), id), created_at, id, role, greatest(gone_at, created_at) FROM instances "
        "ON CONFLICT DO NOTHING"
    )


def downgrade() -> None:
    for table in ("load_rollups_10s", "load_rollups_1m"):
        op.drop_column(table, "prefilling_seconds")
        op.drop_column(table, "busy_seconds")
    for table in ("session_usage_hours", "usage_hours", "work_hours", "instance_prices", "instance_lives"):
        op.drop_table(table)
