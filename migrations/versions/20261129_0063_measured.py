"""What routers measured of a pool's engines is kept while no router knows it: at zero instances, after a restart.

Revision: 0063_measured
Revises: 0062_sizing
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0063_measured"
down_revision = "0062_sizing"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pools", sa.Column("measured", JSONB))


def downgrade() -> None:
    op.drop_column("pools", "measured")
