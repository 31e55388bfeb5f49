"""Adds to moves: whether the session's KV blocks were transferred, how long the request waited for them, and the
predicted wait.

Revision: 0066_cache_transfers Revises: 0065_continuations
"""

import sqlalchemy as sa
from alembic import op

revision = "0066_cache_transfers"
down_revision = "0065_continuations"
branch_labels = None
depends_on = None

TABLES = ("migrations", "reroutes")
COLUMNS = (
    ("cache", sa.Text),
    ("transfer_seconds", sa.Double),
    ("predicted_transfer_seconds", sa.Double),
    ("transfer_bytes", sa.BigInteger),
)


def upgrade() -> None:
    for table in TABLES:
        for name, kind in COLUMNS:
            op.add_column(table, sa.Column(name, kind))


def downgrade() -> None:
    for table in TABLES:
        for name, _ in COLUMNS:
            op.drop_column(table, name)
