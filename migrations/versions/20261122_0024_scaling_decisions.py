"""What was recommended for the roles of pools, why, and what became of it.

Revision: 0024_scaling_decisions
Revises: 0023_schedule_runs
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0024_scaling_decisions"
down_revision = "0023_schedule_runs"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "scaling_decisions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("controller", "role", "mode")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("current", "recommended", "replicas")),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("hold", sa.Text(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("lower", "upper")),
        *(sa.Column(name, sa.Text(), nullable=True) for name in ("lower_by", "upper_by")),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("need", postgresql.JSONB(none_as_null=True), nullable=True),
        sa.Column("imbalance", postgresql.JSONB(none_as_null=True), nullable=True),
        sa.Column("signals", postgresql.JSONB(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_scaling_decisions_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scaling_decisions")),
    )
    op.create_index(op.f("ix_scaling_decisions_at_id"), "scaling_decisions", ["at", "id"], unique=False)
    op.create_index(op.f("ix_scaling_decisions_pool_id_at"), "scaling_decisions", ["pool_id", "at"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_scaling_decisions_pool_id_at"), table_name="scaling_decisions")
    op.drop_index(op.f("ix_scaling_decisions_at_id"), table_name="scaling_decisions")
    op.drop_table("scaling_decisions")
