"""What each router knows of the prefix caches of instances.

Revision: 0033_known_caches
Revises: 0032_predictor_models
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0033_known_caches"
down_revision = "0032_predictor_models"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("routers", sa.Column("known_caches", JSONB(), nullable=False, server_default="{}"))


def downgrade() -> None:
    op.drop_column("routers", "known_caches")
