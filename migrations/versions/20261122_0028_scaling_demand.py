"""What routers told of a pool's use, for decisions to zero and from zero.

Revision: 0028_scaling_demand
Revises: 0027_holding
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0028_scaling_demand"
down_revision = "0027_holding"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("scaling_decisions", sa.Column("demand", JSONB(), nullable=True))


def downgrade() -> None:
    op.drop_column("scaling_decisions", "demand")
