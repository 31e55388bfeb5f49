"""The spec in force of each pool, which a refused one does not replace.

Revision: 0026_spec_in_force
Revises: 0025_desired
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0026_spec_in_force"
down_revision = "0025_desired"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pools", sa.Column("spec_in_force", JSONB(), nullable=True))
    op.execute("UPDATE pools SET spec_in_force = spec WHERE problem IS NULL")


def downgrade() -> None:
    op.drop_column("pools", "spec_in_force")
