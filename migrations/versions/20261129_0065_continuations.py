"""Adds to decisions: the continuations of the answer at other instances after it broke off, with their cost.

Revision: 0065_continuations Revises: 0064_measured
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0065_continuations"
down_revision = "0064_measured"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("decisions", sa.Column("continuations", JSONB))


def downgrade() -> None:
    op.drop_column("decisions", "continuations")
