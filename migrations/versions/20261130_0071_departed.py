"""Adds to pools: how the demand departs from its forecast; null while the demand is within the forecast.

Revision: 0071_departed Revises: 0070_former_secrets
"""

import sqlalchemy as sa
from alembic import op

revision = "0071_departed"
down_revision = "0070_former_secrets"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pools", sa.Column("departed", sa.Text))


def downgrade() -> None:
    op.drop_column("pools", "departed")
