"""What each router has learnt of engines.

Revision: 0035_learnt_figures
Revises: 0034_gateway_keys
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0035_learnt_figures"
down_revision = "0034_gateway_keys"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("routers", sa.Column("learnt_figures", JSONB(), nullable=False, server_default="{}"))


def downgrade() -> None:
    op.drop_column("routers", "learnt_figures")
