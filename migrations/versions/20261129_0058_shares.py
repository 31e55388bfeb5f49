"""What routers that decide for themselves tell each other: by pool, the work and the prompts of each.

Revision: 0058_shares
Revises: 0057_ranks
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0058_shares"
down_revision = "0057_ranks"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("routers", sa.Column("shares", postgresql.JSONB, nullable=False, server_default="{}"))


def downgrade() -> None:
    op.drop_column("routers", "shares")
