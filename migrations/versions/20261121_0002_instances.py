"""Keep instances and their transitions.

Revision: 0002_instances
Revises: 0001_pools
"""

import sqlalchemy as sa
from alembic import op

revision = "0002_instances"
down_revision = "0001_pools"
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "instance_transitions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_instance_transitions_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_transitions")),
    )
    op.create_index(
        op.f("ix_instance_transitions_pool_id_instance_at"), "instance_transitions", ["pool_id", "instance", "at"], unique=False
    )
    op.create_table(
        "instances",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pod_uid", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=True),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=True),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("restarts", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("anchors", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("key_share", sa.Double(), server_default="0", nullable=False),
        sa.Column("table_version", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state_since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_instances_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "id", name=op.f("pk_instances")),
    )
    op.create_index(
        op.f("ix_instances_pool_id_created_at"),
        "instances",
        ["pool_id", "created_at"],
        unique=False,
        postgresql_where=sa.text("gone_at IS NULL"),
    )


def downgrade() -> None:

    op.drop_index(op.f("ix_instances_pool_id_created_at"), table_name="instances", postgresql_where=sa.text("gone_at IS NULL"))
    op.drop_table("instances")
    op.drop_index(op.f("ix_instance_transitions_pool_id_instance_at"), table_name="instance_transitions")
    op.drop_table("instance_transitions")
