"""Adds prices per instance and hour that a cost tool such as OpenCost measured.

Revision: 0080_measured_prices Revises: 0079_shadows
"""

import sqlalchemy as sa
from alembic import op

revision = "0080_measured_prices"
down_revision = "0079_shadows"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "measured_prices",
        sa.Column("pool_id", sa.Integer, sa.ForeignKey("pools.id"), primary_key=True),
        sa.Column("role", sa.Text, primary_key=True),
        sa.Column("bucket", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("micros_per_hour", sa.BigInteger, nullable=False),
        sa.Column("currency", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("measured_prices")
