"""What routers measured of a pool's engines is kept while no router knows it: at zero instances, after a restart.

Revision: 0064_measured
Revises: 0063_move_rollups
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0064_measured"
down_revision = "0063_move_rollups"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pools", sa.Column("measured", JSONB))


def downgrade() -> None:
    op.drop_column("pools", "measured")
