"""Keep routing tables and what routers acknowledged.

Revision: 0003_routing_tables
Revises: 0002_instances
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003_routing_tables"
down_revision = "0002_instances"
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "routers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("acknowledged", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("in_flight", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_routers")),
    )
    op.create_table(
        "router_acknowledgements",
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_router_acknowledgements_pool_id")),
        sa.ForeignKeyConstraint(["router"], ["routers.id"], name=op.f("fk_router_acknowledgements_router")),
        sa.PrimaryKeyConstraint("router", "pool_id", "version", name=op.f("pk_router_acknowledgements")),
    )
    op.create_table(
        "routing_tables",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("content", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("content_hash", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_routing_tables_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "version", name=op.f("pk_routing_tables")),
    )


def downgrade() -> None:

    op.drop_table("routing_tables")
    op.drop_table("router_acknowledgements")
    op.drop_table("routers")
