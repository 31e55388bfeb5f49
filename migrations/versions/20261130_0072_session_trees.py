"""Adds session trees, and the sums of each session's turns for each task.

Revision: 0072_session_trees Revises: 0071_departed
"""

import sqlalchemy as sa
from alembic import op

from fairlead_api.infra.online_changes import build_on_partitions

revision = "0072_session_trees"
down_revision = "0071_departed"
branch_labels = None
depends_on = None

_TEXTS = ("outcome", "rejection", "decision", "tenant", "task", "tool")
_SUMS = (
    *("turns", "refusals", "failures", "prompt_tokens", "cached_tokens", "output_tokens"),
    *("queued_microseconds", "model_microseconds"),
)


def upgrade() -> None:
    op.create_table(
        "session_trees",
        sa.Column("pool_id", sa.Integer, sa.ForeignKey("pools.id", name="fk_session_trees_pool_id"), primary_key=True),
        sa.Column("session", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("root", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text) for name in ("parent", "link", "evidence")),
        *(sa.Column(name, sa.DateTime(timezone=True), nullable=False) for name in ("first_at", "last_at")),
        *(sa.Column(name, sa.Integer, nullable=False) for name in ("first_blocks", "last_blocks")),
        sa.Column("last_block", sa.BigInteger),
        if_not_exists=True,  # an index is built outside of a transaction
    )
    for columns in (["pool_id", "root", "first_at"], ["pool_id", "last_block"], ["last_at"]):
        op.create_index(f"ix_session_trees_{'_'.join(columns)}", "session_trees", columns, if_not_exists=True)
    op.create_table(
        "task_turns",
        sa.Column("pool_id", sa.Integer, sa.ForeignKey("pools.id", name="fk_task_turns_pool_id"), primary_key=True),
        sa.Column("session", sa.Text, primary_key=True),
        sa.Column("task", sa.Text, primary_key=True),
        *(sa.Column(name, sa.DateTime(timezone=True), nullable=False) for name in ("first_at", "ended_at")),
        *(sa.Column(name, sa.BigInteger, nullable=False, server_default="0") for name in _SUMS),
        sa.ForeignKeyConstraint(
            ["pool_id", "session"],
            ["session_trees.pool_id", "session_trees.session"],
            name="fk_task_turns_pool_id_session",
            ondelete="CASCADE",
        ),
        if_not_exists=True,
    )
    for columns in (["pool_id", "task"], ["pool_id", "ended_at"]):
        op.create_index(f"ix_task_turns_{'_'.join(columns)}", "task_turns", columns, if_not_exists=True)
    op.add_column("recorded_requests", sa.Column("ended_seconds", sa.REAL), if_not_exists=True)
    for name in _TEXTS:
        op.add_column("recorded_requests", sa.Column(name, sa.Text), if_not_exists=True)
    op.add_column("recorded_requests", sa.Column("window_number", sa.Integer), if_not_exists=True)
    build_on_partitions("recorded_requests", ["session", "at"])


def downgrade() -> None:
    op.drop_index("ix_recorded_requests_session_at", "recorded_requests")
    for name in ("window_number", *reversed(_TEXTS), "ended_seconds"):
        op.drop_column("recorded_requests", name)
    op.drop_table("task_turns")
    op.drop_table("session_trees")
