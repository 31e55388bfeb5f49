"""Adds SLO targets for whole tasks, and the facts by which a task is judged: the priority class of its first turn, and
whether its last turn was answered.

Revision: 0081_task_targets Revises: 0080_measured_prices
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0081_task_targets"
down_revision = "0080_measured_prices"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("slo_configs", sa.Column("task", JSONB, nullable=False, server_default="[]"))
    op.add_column("task_turns", sa.Column("priority_class", sa.Text, nullable=False, server_default="default"))
    op.add_column("task_turns", sa.Column("answered", sa.Boolean, nullable=False, server_default="true"))


def downgrade() -> None:
    op.drop_column("task_turns", "answered")
    op.drop_column("task_turns", "priority_class")
    op.drop_column("slo_configs", "task")
