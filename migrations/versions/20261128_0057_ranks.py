"""The data-parallel ranks that decisions, moves, sessions' homes and loads are of; null where an instance has one alone.

Revision: 0057_ranks
Revises: 0056_shared_session_names
"""

import sqlalchemy as sa
from alembic import op

revision = "0057_ranks"
down_revision = "0056_shared_session_names"
branch_labels = None
depends_on = None

_RANKS = {
    "decisions": ("chosen_rank", "runner_up_rank", "served_by_rank", "decode_rank"),
    "migrations": ("source_rank", "target_rank"),
    "reroutes": ("source_rank", "target_rank"),
    "sessions": ("rank",),
    "bindings": ("rank",),
    "load_samples": ("rank",),
}


def upgrade() -> None:
    for table, columns in _RANKS.items():
        for column in columns:
            op.add_column(table, sa.Column(column, sa.Integer))


def downgrade() -> None:
    for table, columns in _RANKS.items():
        for column in reversed(columns):
            op.drop_column(table, column)
