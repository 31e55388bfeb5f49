"""The bootstrap token that opened a web session, by its hash, so that the session ends when the token's secret is replaced.

Revision: 0054_session_openers
Revises: 0053_rare_outcomes
"""

import sqlalchemy as sa
from alembic import op

revision = "0054_session_openers"
down_revision = "0053_rare_outcomes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("web_sessions", sa.Column("opened_by", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    op.drop_column("web_sessions", "opened_by")
