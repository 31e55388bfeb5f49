"""Adds to moves: whether a router moved the session before its next turn, because its instance was about to leave.

Revision: 0067_handed_over Revises: 0066_cache_transfers
"""

import sqlalchemy as sa
from alembic import op

revision = "0067_handed_over"
down_revision = "0066_cache_transfers"
branch_labels = None
depends_on = None

TABLES = ("migrations", "reroutes")


def upgrade() -> None:
    for table in TABLES:
        op.add_column(table, sa.Column("handed_over", sa.Boolean, nullable=False, server_default=sa.false()))


def downgrade() -> None:
    for table in TABLES:
        op.drop_column(table, "handed_over")
