"""Keep plans.

Revision: 0008_plans
Revises: 0007_load_samples
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008_plans"
down_revision = "0007_load_samples"
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "plans",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("replicas_before", sa.BigInteger(), nullable=False),
        sa.Column("replicas_after", sa.BigInteger(), nullable=False),
        sa.Column("diff", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("effect", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("patch", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("applied_by", sa.Text(), nullable=True),
        sa.Column("applied_generation", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("undo_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("undo_of", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_plans_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plans")),
    )
    op.create_index(op.f("ix_plans_pool_id_created_at"), "plans", ["pool_id", "created_at"], unique=False)


def downgrade() -> None:

    op.drop_index(op.f("ix_plans_pool_id_created_at"), table_name="plans")
    op.drop_table("plans")
