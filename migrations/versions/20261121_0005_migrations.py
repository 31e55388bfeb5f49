"""Record migrations.

Revision: 0005_migrations
Revises: 0004_sessions
"""

import sqlalchemy as sa
from alembic import op

revision = "0005_migrations"
down_revision = "0004_sessions"
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "migrations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=True),
        sa.Column("request", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("predicted_source_ttft_seconds", sa.Double(), nullable=False),
        sa.Column("predicted_target_ttft_seconds", sa.Double(), nullable=False),
        sa.Column("benefit_seconds", sa.Double(), nullable=False),
        sa.Column("actual_ttft_seconds", sa.Double(), nullable=True),
        sa.Column("tokens_moved", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tokens_recomputed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_migrations_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_migrations")),
    )
    op.create_index(op.f("ix_migrations_at_id"), "migrations", ["at", "id"], unique=False)
    op.create_index(op.f("ix_migrations_pool_id_at"), "migrations", ["pool_id", "at"], unique=False)
    op.create_index(op.f("ix_migrations_pool_id_session_at"), "migrations", ["pool_id", "session", "at"], unique=False)
    op.create_index(op.f("ix_migrations_recorded_at"), "migrations", ["recorded_at"], unique=False)


def downgrade() -> None:

    op.drop_index(op.f("ix_migrations_recorded_at"), table_name="migrations")
    op.drop_index(op.f("ix_migrations_pool_id_session_at"), table_name="migrations")
    op.drop_index(op.f("ix_migrations_pool_id_at"), table_name="migrations")
    op.drop_index(op.f("ix_migrations_at_id"), table_name="migrations")
    op.drop_table("migrations")
