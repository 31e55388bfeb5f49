"""Output tokens as they come, from routers that tell them: those of answers that are not complete too.

Revision: 0030_generated_tokens
Revises: 0029_prompt_squares
"""

import sqlalchemy as sa
from alembic import op

revision = "0030_generated_tokens"
down_revision = "0029_prompt_squares"
branch_labels = None
depends_on = None

_ROLLUPS = ("load_rollups_10s", "load_rollups_1m")


def upgrade() -> None:
    op.add_column("load_samples", sa.Column("generated_tokens", sa.BigInteger(), nullable=True))
    for table in _ROLLUPS:
        op.add_column(table, sa.Column("generated_tokens", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    for table in reversed(_ROLLUPS):
        op.drop_column(table, "generated_tokens")
    op.drop_column("load_samples", "generated_tokens")
