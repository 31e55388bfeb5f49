"""Adds the requests that canaries are judged by, the steps of canaries, and the verdicts on these steps.

Revision: 0073_canaries Revises: 0072_session_trees
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0073_canaries"
down_revision = "0072_session_trees"
branch_labels = None
depends_on = None


def _pool(*, primary_key: bool = False) -> "sa.Column[object]":
    return sa.Column("pool_id", sa.Integer, sa.ForeignKey("pools.id"), nullable=False, primary_key=primary_key)


def upgrade() -> None:
    op.create_table(
        "canary_samples",
        _pool(),
        sa.Column("router", sa.Text, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("step", "session")),
        sa.Column("canary", sa.Boolean, nullable=False),
        sa.Column("priority_class", sa.Text, nullable=False, server_default="default"),
        *(sa.Column(name, sa.BigInteger, nullable=False, server_default="0") for name in ("prompt_tokens", "hit_tokens")),
        sa.Column("cached_tokens", sa.BigInteger),
        sa.Column("decoding", sa.BigInteger, nullable=False, server_default="0"),
        *(sa.Column(name, sa.Double) for name in ("ttft_seconds", "tpot_seconds")),
        sa.Column("output_tokens", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("failed", sa.Boolean, nullable=False),
        postgresql_partition_by="RANGE (at)",
    )
    op.create_index("ix_canary_samples_pool_id_step_at", "canary_samples", ["pool_id", "step", "at"])
    op.create_table(
        "canary_steps",
        _pool(primary_key=True),
        sa.Column("step", sa.Text, primary_key=True),
        sa.Column("share", sa.Double, nullable=False),
        sa.Column("rules", postgresql.JSONB, nullable=False),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
    )
    op.create_index("ix_canary_steps_open", "canary_steps", ["pool_id"], postgresql_where=sa.text("ended_at IS NULL"))
    op.create_table(
        "canary_looks",
        _pool(primary_key=True),
        sa.Column("step", sa.Text, primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("judgement", postgresql.JSONB, nullable=False),
    )


def downgrade() -> None:
    for table in ("canary_looks", "canary_steps", "canary_samples"):
        op.drop_table(table)
