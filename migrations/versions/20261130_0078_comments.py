"""Adds comments of people on a stretch of a pool's time or on a plan.

Revision: 0078_comments Revises: 0077_audit_views
"""

import sqlalchemy as sa
from alembic import op

revision = "0078_comments"
down_revision = "0077_audit_views"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "comments",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("pool_id", sa.Integer, sa.ForeignKey("pools.id"), nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("author", "text")),
        *(sa.Column(name, sa.DateTime(timezone=True), nullable=False) for name in ("start", "end")),
        sa.Column("plan", sa.Text),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("ix_comments_pool_id_start", "comments", ["pool_id", "start"])
    op.create_index("ix_comments_start", "comments", ["start"])
    op.create_index("ix_comments_plan", "comments", ["plan"])


def downgrade() -> None:
    op.drop_table("comments")
