"""Simulations that people asked for.

Revision: 0040_simulations
Revises: 0039_slo_samples
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0040_simulations"
down_revision = "0039_slo_samples"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "simulations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("policies", postgresql.JSONB(), nullable=False),
        sa.Column("rates", postgresql.JSONB(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("target", postgresql.JSONB(), nullable=False),
        sa.Column("start", sa.DateTime(timezone=True), nullable=True),
        sa.Column("end", sa.DateTime(timezone=True), nullable=True),
        sa.Column("trace", sa.LargeBinary(), nullable=True),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("done", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("attempts", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("runner", sa.Text(), nullable=True),
        sa.Column("heard_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("results", postgresql.JSONB(), nullable=True),
        sa.Column("winner", sa.Integer(), nullable=True),
        sa.Column("notes", postgresql.JSONB(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_simulations_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_simulations")),
    )
    op.create_index(op.f("ix_simulations_pool_id_created_at_id"), "simulations", ["pool_id", "created_at", "id"], unique=False)
    op.create_index(
        "uq_simulations_at_work", "simulations", ["pool_id"], unique=True, postgresql_where=sa.text("state IN ('queued', 'running')")
    )


def downgrade() -> None:
    op.drop_table("simulations")
