"""Keep of a plan the object as it was planned for, and who began to apply it: a conflict is told, a lost end made up for.

Revision: 0048_begun_plans
Revises: 0047_decisions_by_request
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0048_begun_plans"
down_revision = "0047_decisions_by_request"
branch_labels = None
depends_on = None

_JSON = postgresql.JSONB(none_as_null=True, astext_type=sa.Text())


def upgrade() -> None:
    op.add_column("plans", sa.Column("seen", _JSON, nullable=True))
    op.add_column("plans", sa.Column("begun_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("plans", sa.Column("begun", _JSON, nullable=True))


def downgrade() -> None:
    for name in ("seen", "begun_at", "begun"):
        op.drop_column("plans", name)
