"""How long a request was held for the pool's first instance; how each router uses each pool.

Revision: 0027_holding
Revises: 0026_spec_in_force
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0027_holding"
down_revision = "0026_spec_in_force"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("decisions", sa.Column("held_seconds", sa.Double(), nullable=True))
    op.add_column("routers", sa.Column("use", JSONB(), nullable=False, server_default="{}"))


def downgrade() -> None:
    op.drop_column("routers", "use")
    op.drop_column("decisions", "held_seconds")
