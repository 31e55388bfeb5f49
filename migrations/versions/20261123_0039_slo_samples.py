"""How requests kept the SLO, by priority class and version; the classes and the spec's revision of each version.

Revision: 0039_slo_samples
Revises: 0038_recorded_requests
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0039_slo_samples"
down_revision = "0038_recorded_requests"
branch_labels = None
depends_on = None

SUMS = ("judged", "within_slo", "ttft_within_slo", "tpot_within_slo", "tpot_total", "refused", "failed")


def counts() -> "list[sa.Column[Any]]":
    sums: list[sa.Column[Any]] = [sa.Column(name, sa.BigInteger(), server_default="0", nullable=False) for name in SUMS]
    return [
        *sums,
        sa.Column("cells", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("counts", postgresql.ARRAY(sa.BigInteger()), nullable=False),
    ]


def upgrade() -> None:
    op.add_column("slo_configs", sa.Column("classes", postgresql.JSONB(), server_default="[]", nullable=False))
    op.add_column("slo_configs", sa.Column("revision", sa.BigInteger(), nullable=True))
    op.create_table(
        "slo_samples",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("second", sa.DateTime(timezone=True), nullable=False),
        sa.Column("priority_class", sa.Text(), server_default="default", nullable=False),
        sa.Column("slo_version", sa.BigInteger(), nullable=True),
        *counts(),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_slo_samples_pool_id")),
        postgresql_partition_by="RANGE (second)",
    )
    op.create_index(op.f("ix_slo_samples_pool_id_second"), "slo_samples", ["pool_id", "second"], unique=False)
    for name in ("slo_rollups_1m", "slo_rollups_1h"):
        op.create_table(
            name,
            sa.Column("pool_id", sa.Integer(), nullable=False),
            sa.Column("bucket", sa.DateTime(timezone=True), nullable=False),
            sa.Column("priority_class", sa.Text(), nullable=False),
            sa.Column("slo_version", sa.BigInteger(), autoincrement=False, nullable=False),
            *counts(),
            sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f(f"fk_{name}_pool_id")),
            sa.PrimaryKeyConstraint("pool_id", "bucket", "priority_class", "slo_version", name=op.f(f"pk_{name}")),
        )


def downgrade() -> None:
    op.drop_table("slo_rollups_1h")
    op.drop_table("slo_rollups_1m")
    op.drop_index(op.f("ix_slo_samples_pool_id_second"), table_name="slo_samples")
    op.drop_table("slo_samples")
    op.drop_column("slo_configs", "revision")
    op.drop_column("slo_configs", "classes")
