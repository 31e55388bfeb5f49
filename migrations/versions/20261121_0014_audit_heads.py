"""Keep the head of each day's audit chain, so that entries cut from the end of the log are missed.

Revision: 0014_audit_heads
Revises: 0013_reroutes
"""

import sqlalchemy as sa
from alembic import op

revision = "0014_audit_heads"
down_revision = "0013_reroutes"
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "audit_heads",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("last_id", sa.BigInteger(), nullable=False),
        sa.Column("chain", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("day", name=op.f("pk_audit_heads")),
        sa.UniqueConstraint("last_id", name=op.f("uq_audit_heads_last_id")),
    )
    op.execute(
        "INSERT INTO audit_heads (day, last_id, chain, at) SELECT DISTINCT ON (day) day, id, chain, at FROM audit_log ORDER BY day, id DESC"
    )


def downgrade() -> None:

    op.drop_table("audit_heads")
