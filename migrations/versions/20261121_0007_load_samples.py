"""Record load samples by day and their rollups.

Revision: 0007_load_samples
Revises: 0006_decisions
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007_load_samples"
down_revision = "0006_decisions"
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "load_rollups_10s",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("bucket", sa.DateTime(timezone=True), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("pending_prefill_tokens_max", sa.REAL(), nullable=True),
        sa.Column("pending_prefill_tokens_sum", sa.Double(), nullable=True),
        sa.Column("pending_prefill_tokens_n", sa.Integer(), nullable=False),
        sa.Column("running_max", sa.REAL(), nullable=True),
        sa.Column("running_sum", sa.Double(), nullable=True),
        sa.Column("running_n", sa.Integer(), nullable=False),
        sa.Column("waiting_max", sa.REAL(), nullable=True),
        sa.Column("waiting_sum", sa.Double(), nullable=True),
        sa.Column("waiting_n", sa.Integer(), nullable=False),
        sa.Column("in_flight_max", sa.REAL(), nullable=True),
        sa.Column("in_flight_sum", sa.Double(), nullable=True),
        sa.Column("in_flight_n", sa.Integer(), nullable=False),
        sa.Column("kv_usage_max", sa.REAL(), nullable=True),
        sa.Column("kv_usage_sum", sa.Double(), nullable=True),
        sa.Column("kv_usage_n", sa.Integer(), nullable=False),
        sa.Column("ttft_p95_max", sa.REAL(), nullable=True),
        sa.Column("ttft_p95_sum", sa.Double(), nullable=True),
        sa.Column("ttft_p95_n", sa.Integer(), nullable=False),
        sa.Column("tpot_p95_max", sa.REAL(), nullable=True),
        sa.Column("tpot_p95_sum", sa.Double(), nullable=True),
        sa.Column("tpot_p95_n", sa.Integer(), nullable=False),
        sa.Column("hit_rate_max", sa.REAL(), nullable=True),
        sa.Column("hit_rate_sum", sa.Double(), nullable=True),
        sa.Column("hit_rate_n", sa.Integer(), nullable=False),
        sa.Column("requests_max", sa.REAL(), nullable=True),
        sa.Column("requests_sum", sa.Double(), nullable=True),
        sa.Column("requests_n", sa.Integer(), nullable=False),
        sa.Column("failed_max", sa.REAL(), nullable=True),
        sa.Column("failed_sum", sa.Double(), nullable=True),
        sa.Column("failed_n", sa.Integer(), nullable=False),
        sa.Column("requests_total", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("completed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("failed_total", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cancelled", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("hit_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("ttft_within_slo", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("ttft_total", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_load_rollups_10s_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "bucket", "instance", name=op.f("pk_load_rollups_10s")),
    )
    op.create_table(
        "load_rollups_1m",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("bucket", sa.DateTime(timezone=True), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("pending_prefill_tokens_max", sa.REAL(), nullable=True),
        sa.Column("pending_prefill_tokens_sum", sa.Double(), nullable=True),
        sa.Column("pending_prefill_tokens_n", sa.Integer(), nullable=False),
        sa.Column("running_max", sa.REAL(), nullable=True),
        sa.Column("running_sum", sa.Double(), nullable=True),
        sa.Column("running_n", sa.Integer(), nullable=False),
        sa.Column("waiting_max", sa.REAL(), nullable=True),
        sa.Column("waiting_sum", sa.Double(), nullable=True),
        sa.Column("waiting_n", sa.Integer(), nullable=False),
        sa.Column("in_flight_max", sa.REAL(), nullable=True),
        sa.Column("in_flight_sum", sa.Double(), nullable=True),
        sa.Column("in_flight_n", sa.Integer(), nullable=False),
        sa.Column("kv_usage_max", sa.REAL(), nullable=True),
        sa.Column("kv_usage_sum", sa.Double(), nullable=True),
        sa.Column("kv_usage_n", sa.Integer(), nullable=False),
        sa.Column("ttft_p95_max", sa.REAL(), nullable=True),
        sa.Column("ttft_p95_sum", sa.Double(), nullable=True),
        sa.Column("ttft_p95_n", sa.Integer(), nullable=False),
        sa.Column("tpot_p95_max", sa.REAL(), nullable=True),
        sa.Column("tpot_p95_sum", sa.Double(), nullable=True),
        sa.Column("tpot_p95_n", sa.Integer(), nullable=False),
        sa.Column("hit_rate_max", sa.REAL(), nullable=True),
        sa.Column("hit_rate_sum", sa.Double(), nullable=True),
        sa.Column("hit_rate_n", sa.Integer(), nullable=False),
        sa.Column("requests_max", sa.REAL(), nullable=True),
        sa.Column("requests_sum", sa.Double(), nullable=True),
        sa.Column("requests_n", sa.Integer(), nullable=False),
        sa.Column("failed_max", sa.REAL(), nullable=True),
        sa.Column("failed_sum", sa.Double(), nullable=True),
        sa.Column("failed_n", sa.Integer(), nullable=False),
        sa.Column("requests_total", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("completed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("failed_total", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cancelled", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("hit_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("ttft_within_slo", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("ttft_total", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_load_rollups_1m_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "bucket", "instance", name=op.f("pk_load_rollups_1m")),
    )
    op.create_table(
        "load_samples",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("second", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("running", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("waiting", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("pending_prefill_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("in_flight", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("kv_usage", sa.REAL(), nullable=True),
        sa.Column("requests", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("completed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("failed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cancelled", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("hit_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("ttft_seconds", postgresql.ARRAY(sa.REAL()), nullable=False),
        sa.Column("tpot_seconds", postgresql.ARRAY(sa.REAL()), nullable=False),
        sa.Column("ttft_within_slo", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("ttft_total", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_load_samples_pool_id")),
        postgresql_partition_by="RANGE (second)",
    )
    op.create_index(op.f("ix_load_samples_pool_id_second"), "load_samples", ["pool_id", "second"], unique=False)
    op.create_table(
        "rollup_queue",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("bucket", sa.DateTime(timezone=True), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_rollup_queue_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "bucket", "router", name=op.f("pk_rollup_queue")),
    )


def downgrade() -> None:

    op.drop_table("rollup_queue")
    op.drop_index(op.f("ix_load_samples_pool_id_second"), table_name="load_samples")
    op.drop_table("load_samples")
    op.drop_table("load_rollups_1m")
    op.drop_table("load_rollups_10s")
