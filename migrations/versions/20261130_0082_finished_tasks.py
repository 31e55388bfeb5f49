"""Adds finished tasks, their sums by hour, and for each running task the time at which to check whether it has
finished.

Revision: 0082_finished_tasks Revises: 0081_task_targets
"""

import sqlalchemy as sa
from alembic import op

from fairlead_api.infra.online_changes import build

revision = "0082_finished_tasks"
down_revision = "0081_task_targets"
branch_labels = None
depends_on = None

_SUMS = (
    *("tasks", "judged", "in_time", "broken_off", "moves", "wall_microseconds", "tool_tasks", "tool_microseconds"),
    *("turns", "refusals", "failures", "prompt_tokens", "cached_tokens", "output_tokens"),
    *("queued_microseconds", "model_microseconds"),
)


def upgrade() -> None:
    op.create_table(
        "finished_tasks",
        _pool("finished_tasks"),
        sa.Column("named", sa.Boolean, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("bucket", sa.DateTime(timezone=True), nullable=False),
        sa.Column("priority_class", sa.Text, nullable=False, server_default="default"),
        sa.Column("slo_version", sa.BigInteger, nullable=False),
        *_sums(),
        if_not_exists=True,  # an index is built outside of a transaction
    )
    op.create_index("ix_finished_tasks_pool_id_bucket", "finished_tasks", ["pool_id", "bucket"], if_not_exists=True)
    op.create_table(
        "task_rollups_1h",
        _pool("task_rollups_1h"),
        sa.Column("bucket", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("priority_class", sa.Text, primary_key=True),
        sa.Column("slo_version", sa.BigInteger, primary_key=True),
        *_sums(),
        if_not_exists=True,
    )
    # The default makes all stored tasks due without writing their rows: the past is counted by the job.
    op.add_column("task_turns", sa.Column("count_at", sa.DateTime(timezone=True), server_default=sa.func.now()), if_not_exists=True)
    build("task_turns", ["count_at"], "count_at IS NOT NULL")


def downgrade() -> None:
    op.drop_index("ix_task_turns_count_at", "task_turns")
    op.drop_column("task_turns", "count_at")
    op.drop_table("task_rollups_1h")
    op.drop_table("finished_tasks")


def _pool(table: str) -> "sa.Column[int]":
    return sa.Column("pool_id", sa.Integer, sa.ForeignKey("pools.id", name=f"fk_{table}_pool_id"), primary_key=True)


def _sums() -> "list[sa.Column[int]]":
    return [sa.Column(name, sa.BigInteger, nullable=False, server_default="0") for name in _SUMS]
