"""What each router finds of engines that is not as their pool's spec says.

Revision: 0031_troubled_engines
Revises: 0030_generated_tokens
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0031_troubled_engines"
down_revision = "0030_generated_tokens"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("routers", sa.Column("troubled_engines", JSONB(), nullable=False, server_default="{}"))


def downgrade() -> None:
    op.drop_column("routers", "troubled_engines")
