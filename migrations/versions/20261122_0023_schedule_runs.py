"""What became of each start of a schedule's window, and until when starts of a pool were noted.

Revision: 0023_schedule_runs
Revises: 0022_plan_patches
"""

import sqlalchemy as sa
from alembic import op

revision = "0023_schedule_runs"
down_revision = "0022_plan_patches"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "schedule_runs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("schedule", sa.Text(), nullable=False),
        sa.Column("start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closes", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("overruled_by", sa.Text(), nullable=True),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_schedule_runs_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedule_runs")),
        sa.UniqueConstraint("pool_id", "uid", "schedule", "start", name=op.f("uq_schedule_runs_pool_id_uid_schedule_start")),
    )
    op.create_index(op.f("ix_schedule_runs_pool_id_schedule_start"), "schedule_runs", ["pool_id", "schedule", "start"], unique=False)
    op.create_index(op.f("ix_schedule_runs_start_id"), "schedule_runs", ["start", "id"], unique=False)
    op.add_column("pools", sa.Column("starts_noted_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("pools", "starts_noted_at")
    op.drop_table("schedule_runs")
