"""The instances wanted now, per role, as the operator says them.

Revision: 0025_desired
Revises: 0024_scaling_decisions
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0025_desired"
down_revision = "0024_scaling_decisions"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pools", sa.Column("desired", JSONB(), nullable=True))


def downgrade() -> None:
    op.drop_column("pools", "desired")
