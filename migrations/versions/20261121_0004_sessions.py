"""Bind sessions and keep every holder.

Revision: 0004_sessions
Revises: 0003_routing_tables
"""

import sqlalchemy as sa
from alembic import op

revision = "0004_sessions"
down_revision = "0003_routing_tables"
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "bindings",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("bound_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("migration", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_bindings_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "session", "version", name=op.f("pk_bindings")),
    )
    op.create_table(
        "sessions",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("instance", sa.Text(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("bound_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("migrated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("migrations", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("context_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_sessions_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "session", name=op.f("pk_sessions")),
    )
    op.create_index(op.f("ix_sessions_last_seen_at"), "sessions", ["last_seen_at"], unique=False)
    op.create_index(op.f("ix_sessions_pool_id_instance"), "sessions", ["pool_id", "instance"], unique=False)


def downgrade() -> None:

    op.drop_index(op.f("ix_sessions_pool_id_instance"), table_name="sessions")
    op.drop_index(op.f("ix_sessions_last_seen_at"), table_name="sessions")
    op.drop_table("sessions")
    op.drop_table("bindings")
