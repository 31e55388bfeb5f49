"""Adds saved views of the audit log.

Revision: 0077_audit_views Revises: 0076_decision_traces
"""

import sqlalchemy as sa
from alembic import op

revision = "0077_audit_views"
down_revision = "0076_decision_traces"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit_views",
        sa.Column("id", sa.Text, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("name", "owner")),
        sa.Column("shared", sa.Boolean, nullable=False),
        *(sa.Column(name, sa.Text) for name in ("pool", "kind", "actor", "action", "object", "start", "end")),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("ix_audit_views_owner_name", "audit_views", ["owner", "name"], unique=True)
    op.create_index("ix_audit_views_shared", "audit_views", ["name"], postgresql_where=sa.text("shared"))


def downgrade() -> None:
    op.drop_table("audit_views")
