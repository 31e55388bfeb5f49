"""Requests as they came to a pool, for simulations.

Revision: 0038_recorded_requests
Revises: 0037_priority_classes
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0038_recorded_requests"
down_revision = "0037_priority_classes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "recorded_requests",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("session", sa.BigInteger(), nullable=True),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("blocks", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("sample_rate", sa.REAL(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_recorded_requests_pool_id")),
        postgresql_partition_by="RANGE (at)",
    )
    op.create_index(op.f("ix_recorded_requests_pool_id_at"), "recorded_requests", ["pool_id", "at"], unique=False)


def downgrade() -> None:
    op.drop_table("recorded_requests")
