"""Close the windows of schedules whose pools were deleted before that closed them.

Revision: 0055_closed_windows
Revises: 0054_session_openers
"""

from alembic import op

revision = "0055_closed_windows"
down_revision = "0054_session_openers"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "UPDATE schedule_runs r SET outcome = 'closed', reason = 'removed', closed_at = p.deleted_at "
        "FROM pools p WHERE p.id = r.pool_id AND p.deleted_at IS NOT NULL AND r.outcome = 'open'"
    )


def downgrade() -> None:
    """Which were open cannot be told any more, and nothing asks."""
