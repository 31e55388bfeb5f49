"""How an engine served a recorded request, and the engines that were fitted to pools' requests.

Revision: 0060_engine_fits
Revises: 0059_kept_decisions
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0060_engine_fits"
down_revision = "0059_kept_decisions"
branch_labels = None
depends_on = None

_WHOLE_OR_TEXT = {"instance": sa.Text, "rank": sa.Integer, "engine_prompt_tokens": sa.BigInteger, "cached_tokens": sa.BigInteger}
_SECONDS = ("sent_seconds", "ttft_seconds", "answer_seconds")


def upgrade() -> None:
    for name, kind in _WHOLE_OR_TEXT.items():
        op.add_column("recorded_requests", sa.Column(name, kind))
    for name in _SECONDS:
        op.add_column("recorded_requests", sa.Column(name, sa.REAL))
    op.create_table(
        "engine_fits",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("stored_by", sa.Text(), nullable=False),
        sa.Column("fit", postgresql.JSONB(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_engine_fits_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", name=op.f("pk_engine_fits")),
    )


def downgrade() -> None:
    op.drop_table("engine_fits")
    for name in (*_SECONDS, *_WHOLE_OR_TEXT):
        op.drop_column("recorded_requests", name)
