"""Models of learning policies: a version per pool for each that a router trained.

Revision: 0032_predictor_models
Revises: 0031_troubled_engines
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0032_predictor_models"
down_revision = "0031_troubled_engines"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "predictor_models",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("figures", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_predictor_models_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_predictor_models")),
        sa.UniqueConstraint("pool_id", "version", name=op.f("uq_predictor_models_pool_id_version")),
        sa.UniqueConstraint("pool_id", "model", name=op.f("uq_predictor_models_pool_id_model")),
    )
    op.create_index(op.f("ix_predictor_models_at_id"), "predictor_models", ["at", "id"], unique=False)


def downgrade() -> None:
    op.drop_table("predictor_models")
