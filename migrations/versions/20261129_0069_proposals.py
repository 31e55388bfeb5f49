"""Adds to plans: the reason and request of a proposal, which is a plan that Fairlead made and that waits for a person
to apply it.

Revision: 0069_proposals Revises: 0068_webhooks
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from fairlead_api.infra.online_changes import build_partial

revision = "0069_proposals"
down_revision = "0068_webhooks"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("plans", sa.Column("proposal", postgresql.JSONB), if_not_exists=True)  # an index is built outside of a transaction
    build_partial("ix_plans_waiting", "plans", ["created_at"], "state = 'open' AND proposal IS NOT NULL")


def downgrade() -> None:
    op.drop_index("ix_plans_waiting", "plans")
    op.drop_column("plans", "proposal")
