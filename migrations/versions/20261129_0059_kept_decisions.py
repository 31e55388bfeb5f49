"""Why a decision is kept, how its request ended and where it failed; whose decisions are kept because they are asked for.

Revision: 0059_kept_decisions
Revises: 0058_shares
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from fairlead_api.infra import online_changes

revision = "0059_kept_decisions"
down_revision = "0058_shares"
branch_labels = None
depends_on = None

_WORDS = ("kept", "outcome", "rejection", "client_request")
_SECONDS = ("tpot_seconds", "ttft_target_seconds", "tpot_target_seconds")


def upgrade() -> None:
    for name in _WORDS:
        op.add_column("decisions", sa.Column(name, sa.Text), if_not_exists=True)  # a try before this one may have been stopped
    for name in _SECONDS:
        op.add_column("decisions", sa.Column(name, sa.Double), if_not_exists=True)
    op.add_column("decisions", sa.Column("attempts", postgresql.JSONB), if_not_exists=True)
    explain = sa.Column("explain", sa.Boolean, nullable=False, server_default=sa.false())
    op.add_column("gateway_keys", explain, if_not_exists=True)
    op.create_table(
        "kept_sessions",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_kept_sessions_pool_id_pools")),
        sa.PrimaryKeyConstraint("pool_id", "session", name=op.f("pk_kept_sessions")),
        if_not_exists=True,
    )
    online_changes.build_on_partitions("decisions", ["client_request", "at"])


def downgrade() -> None:
    op.execute(f"DROP INDEX IF EXISTS {online_changes.index_name('decisions', ['client_request', 'at'])}")
    op.drop_table("kept_sessions")
    op.drop_column("gateway_keys", "explain")
    for name in ("attempts", *_SECONDS, *_WORDS):
        op.drop_column("decisions", name)
