"""Record sampled decisions and rejections by day.

Revision: 0006_decisions
Revises: 0005_migrations
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006_decisions"
down_revision = "0005_migrations"
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "decisions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("table_version", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("chosen", sa.Text(), nullable=False),
        sa.Column("runner_up", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("queued_seconds", sa.Double(), nullable=True),
        sa.Column("ttft_seconds", sa.Double(), nullable=True),
        sa.Column("sample_rate", sa.Double(), nullable=False),
        sa.Column("candidates", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_decisions_pool_id")),
        sa.PrimaryKeyConstraint("id", "at", name=op.f("pk_decisions")),
        postgresql_partition_by="RANGE (at)",
    )
    op.create_index(op.f("ix_decisions_at_id"), "decisions", ["at", "id"], unique=False)
    op.create_index(op.f("ix_decisions_pool_id_at"), "decisions", ["pool_id", "at"], unique=False)
    op.create_index(op.f("ix_decisions_recorded_at"), "decisions", ["recorded_at"], unique=False)
    op.create_table(
        "rejections",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("second", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("sample_request", sa.Text(), nullable=False),
        sa.Column("sample_prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("retry_after_seconds", sa.Double(), nullable=False),
        sa.Column("predicted_ttft_seconds", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_rejections_pool_id")),
        postgresql_partition_by="RANGE (second)",
    )
    op.create_index(op.f("ix_rejections_pool_id_second"), "rejections", ["pool_id", "second"], unique=False)


def downgrade() -> None:

    op.drop_index(op.f("ix_rejections_pool_id_second"), table_name="rejections")
    op.drop_table("rejections")
    op.drop_index(op.f("ix_decisions_recorded_at"), table_name="decisions")
    op.drop_index(op.f("ix_decisions_pool_id_at"), table_name="decisions")
    op.drop_index(op.f("ix_decisions_at_id"), table_name="decisions")
    op.drop_table("decisions")
