"""Who changed pools by the Kubernetes API's audit log, and where each revision was seen, by which both are joined.

Revision: 0050_cluster_changes
Revises: 0048_begun_plans
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0050_cluster_changes"
down_revision = "0049_plan_simulations"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pool_revisions", sa.Column("resource_version", sa.BigInteger, nullable=True))
    op.add_column("pool_revisions", sa.Column("manager", sa.Text, nullable=True))
    op.create_table(
        "cluster_changes",
        sa.Column("audit_id", sa.Text, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("uid", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=True),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("acted_as", sa.Text, nullable=True),
        sa.Column("groups", JSONB, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("audit_id", name=op.f("pk_cluster_changes")),
    )
    op.create_index(op.f("ix_cluster_changes_uid_version"), "cluster_changes", ["uid", "version"])
    op.create_index(op.f("ix_cluster_changes_at"), "cluster_changes", ["at"])


def downgrade() -> None:
    op.drop_table("cluster_changes")
    op.drop_column("pool_revisions", "manager")
    op.drop_column("pool_revisions", "resource_version")
