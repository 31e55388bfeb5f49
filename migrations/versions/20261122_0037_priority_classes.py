"""Priority classes: the one a key may claim at most, and those of decisions and refusals.

Revision: 0037_priority_classes
Revises: 0036_gateway_key_use
"""

import sqlalchemy as sa
from alembic import op

revision = "0037_priority_classes"
down_revision = "0036_gateway_key_use"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("gateway_keys", sa.Column("priority_class", sa.Text(), nullable=True))
    for table in ("decisions", "rejections"):
        op.add_column(table, sa.Column("priority_class", sa.Text(), server_default="default", nullable=False))


def downgrade() -> None:
    for table in ("rejections", "decisions", "gateway_keys"):
        op.drop_column(table, "priority_class")
