"""Adds to decisions: the trace of the request, with an index.

Revision: 0076_decision_traces Revises: 0075_budgets
"""

import sqlalchemy as sa
from alembic import op

from fairlead_api.infra.online_changes import build_on_partitions

revision = "0076_decision_traces"
down_revision = "0075_budgets"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("decisions", sa.Column("trace", sa.Text), if_not_exists=True)  # an index is built outside of a transaction
    build_on_partitions("decisions", ["trace", "at"])


def downgrade() -> None:
    op.drop_index("ix_decisions_trace_at", "decisions")
    op.drop_column("decisions", "trace")
