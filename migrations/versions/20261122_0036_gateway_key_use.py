"""Use of the gateway's keys by minute.

Revision: 0036_gateway_key_use
Revises: 0035_learnt_figures
"""

import sqlalchemy as sa
from alembic import op

revision = "0036_gateway_key_use"
down_revision = "0035_learnt_figures"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "gateway_key_use",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("minute", sa.DateTime(timezone=True), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("refusal", sa.Text(), nullable=False),
        sa.Column("requests", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["gateway_keys.id"], name=op.f("fk_gateway_key_use_key_id")),
        sa.PrimaryKeyConstraint("key_id", "minute", "router", "refusal", name=op.f("pk_gateway_key_use")),
    )
    op.create_index(op.f("ix_gateway_key_use_minute"), "gateway_key_use", ["minute"], unique=False)


def downgrade() -> None:
    op.drop_table("gateway_key_use")
