"""What scaling is decided by: arrivals, both latencies judged by the SLO, and what prefilling took.

Revision: 0020_signals
Revises: 0019_weighing
"""

import sqlalchemy as sa
from alembic import op

revision = "0020_signals"
down_revision = "0019_weighing"
branch_labels = None
depends_on = None

_JUDGED = ("tpot_within_slo", "tpot_total", "within_slo", "judged_by_slo")


def upgrade() -> None:
    op.create_table(
        "arrivals",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("second", sa.DateTime(timezone=True), nullable=False),
        sa.Column("requests", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_arrivals_pool_id")),
        postgresql_partition_by="RANGE (second)",
    )
    op.create_index(op.f("ix_arrivals_pool_id_second"), "arrivals", ["pool_id", "second"], unique=False)
    # null in samples of routers that do not tell: not known, not zero
    for name in (*_JUDGED, "prefilled_tokens"):
        op.add_column("load_samples", sa.Column(name, sa.BigInteger(), nullable=True))
    op.add_column("load_samples", sa.Column("prefilling_seconds", sa.REAL(), nullable=True))
    for table in ("load_rollups_10s", "load_rollups_1m"):
        for name in _JUDGED:
            op.add_column(table, sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    for table in ("load_rollups_1m", "load_rollups_10s"):
        for name in reversed(_JUDGED):
            op.drop_column(table, name)
    op.drop_column("load_samples", "prefilling_seconds")
    for name in ("prefilled_tokens", *reversed(_JUDGED)):
        op.drop_column("load_samples", name)
    op.drop_index(op.f("ix_arrivals_pool_id_second"), table_name="arrivals")
    op.drop_table("arrivals")
