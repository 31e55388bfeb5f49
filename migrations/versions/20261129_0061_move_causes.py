"""What decided a move: the number that crossed a threshold, the prompt's tokens held at both ends, the least gain in force.

Null for moves of before, and of routers of an older release.

Revision: 0061_move_causes
Revises: 0060_engine_fits
"""

import sqlalchemy as sa
from alembic import op

revision = "0061_move_causes"
down_revision = "0060_engine_fits"
branch_labels = None
depends_on = None

_COLUMNS = {
    "crossed": sa.Double,
    "threshold": sa.Double,
    "crossed_unit": sa.Text,
    "source_hit_tokens": sa.BigInteger,
    "target_hit_tokens": sa.BigInteger,
    "least_gain_seconds": sa.Double,
}


def upgrade() -> None:
    for table in ("migrations", "reroutes"):
        for column, kind in _COLUMNS.items():
            op.add_column(table, sa.Column(column, kind))


def downgrade() -> None:
    for table in ("migrations", "reroutes"):
        for column in reversed(_COLUMNS):
            op.drop_column(table, column)
