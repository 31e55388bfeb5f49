"""Adds to decisions: the choices of shadow policies, which only advise.

Revision: 0079_shadows Revises: 0078_comments
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from fairlead_api.infra.online_changes import build_on_partitions

revision = "0079_shadows"
down_revision = "0078_comments"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("decisions", sa.Column("shadows", JSONB, nullable=True), if_not_exists=True)  # an index is built outside of a transaction
    build_on_partitions("decisions", ["pool_id", "at"], name="shadowed", where="shadows IS NOT NULL")


def downgrade() -> None:
    op.drop_index("ix_decisions_shadowed", "decisions")
    op.drop_column("decisions", "shadows")
