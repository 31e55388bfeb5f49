"""Where other routers may ask a router to decide for them.

Revision: 0041_asked_routers
Revises: 0040_simulations
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0041_asked_routers"
down_revision = "0040_simulations"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("routers", sa.Column("asked_at", postgresql.JSONB(), nullable=True))


def downgrade() -> None:
    op.drop_column("routers", "asked_at")
