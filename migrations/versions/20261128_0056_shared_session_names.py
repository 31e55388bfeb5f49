"""Names of sessions that several conversations use: when each was found, and the client's name where a decision went by another.

Revision: 0056_shared_session_names
Revises: 0055_closed_windows
"""

import sqlalchemy as sa
from alembic import op

revision = "0056_shared_session_names"
down_revision = "0055_closed_windows"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sessions", sa.Column("shared_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("decisions", sa.Column("named", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("decisions", "named")
    op.drop_column("sessions", "shared_at")
