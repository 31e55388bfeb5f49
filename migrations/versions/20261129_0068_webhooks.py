"""Adds webhooks, the notices that are sent to them, and the engines that stalled according to a pool's last reported
state.

Revision: 0068_webhooks Revises: 0067_handed_over
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0068_webhooks"
down_revision = "0067_handed_over"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Text, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("name", "url", "secret", "form")),
        *(sa.Column(name, postgresql.ARRAY(sa.Text), nullable=False) for name in ("kinds", "pools")),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
    )
    op.create_index("ix_webhooks_created_at_id", "webhooks", ["created_at", "id"])
    op.create_table(
        "notices",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("webhook", sa.Text, sa.ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("kind", "pool", "subject", "words")),
        sa.Column("facts", postgresql.JSONB, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True)),
        sa.Column("attempts", postgresql.JSONB, nullable=False),
    )
    op.create_index("ix_notices_webhook_at_id", "notices", ["webhook", "at", "id"])
    op.create_index("ix_notices_at_id", "notices", ["at", "id"])
    op.create_index("ix_notices_waiting", "notices", ["webhook", "due_at", "id"], postgresql_where=sa.text("state = 'waiting'"))
    op.add_column("pools", sa.Column("stalled", postgresql.JSONB))


def downgrade() -> None:
    op.drop_column("pools", "stalled")
    op.drop_table("notices")
    op.drop_table("webhooks")
