"""Bindings know the change that made them and never end before they began; report ids belong to their router; lost moves are counted.

Revision: 0015_binding_chains
Revises: 0014_audit_heads
"""

import sqlalchemy as sa
from alembic import op

revision = "0015_binding_chains"
down_revision = "0014_audit_heads"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sessions", sa.Column("change", sa.Text(), nullable=True))
    op.execute("UPDATE bindings SET released_at = bound_at WHERE released_at < bound_at")
    op.create_check_constraint(op.f("ck_bindings_ends_after_it_began"), "bindings", "released_at >= bound_at")
    op.drop_constraint(op.f("pk_reports"), "reports")
    op.create_primary_key(op.f("pk_reports"), "reports", ["router", "id"])
    op.create_table(
        "lost_moves",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("minute", sa.DateTime(timezone=True), nullable=False),
        sa.Column("moves", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_lost_moves_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "router", "minute", name=op.f("pk_lost_moves")),
    )


def downgrade() -> None:
    op.drop_table("lost_moves")
    op.execute("DELETE FROM reports r USING reports o WHERE o.id = r.id AND o.router < r.router")
    op.drop_constraint(op.f("pk_reports"), "reports")
    op.create_primary_key(op.f("pk_reports"), "reports", ["id"])
    op.drop_constraint(op.f("ck_bindings_ends_after_it_began"), "bindings")
    op.drop_column("sessions", "change")
