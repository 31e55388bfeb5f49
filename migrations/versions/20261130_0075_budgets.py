"""Adds to gateway keys: budgets per day and per month, and whether they are used up.

Revision: 0075_budgets Revises: 0074_costs
"""

import sqlalchemy as sa
from alembic import op

revision = "0075_budgets"
down_revision = "0074_costs"
branch_labels = None
depends_on = None

_TEXTS = ("budget_day", "budget_month", "budget_currency")
_TIMES = ("budget_soft_at", "budget_ends_at")


def upgrade() -> None:
    for name in _TEXTS:
        op.add_column("gateway_keys", sa.Column(name, sa.Text))
    op.add_column("gateway_keys", sa.Column("budget_soft_percent", sa.Integer))
    for name in _TIMES:
        op.add_column("gateway_keys", sa.Column(name, sa.DateTime(timezone=True)))


def downgrade() -> None:
    for name in (*_TIMES, "budget_soft_percent", *_TEXTS):
        op.drop_column("gateway_keys", name)
