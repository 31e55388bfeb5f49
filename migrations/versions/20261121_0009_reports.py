"""Remember received reports.

Revision: 0009_reports
Revises: 0008_plans
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009_reports"
down_revision = "0008_plans"
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "reports",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("receipt", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reports")),
    )
    op.create_index(op.f("ix_reports_received_at"), "reports", ["received_at"], unique=False)


def downgrade() -> None:

    op.drop_index(op.f("ix_reports_received_at"), table_name="reports")
    op.drop_table("reports")
