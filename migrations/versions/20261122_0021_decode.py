"""The instance that decodes what another one prefilled.

Revision: 0021_decode
Revises: 0020_signals
"""

import sqlalchemy as sa
from alembic import op

revision = "0021_decode"
down_revision = "0020_signals"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("decisions", sa.Column("decode", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("decisions", "decode")
