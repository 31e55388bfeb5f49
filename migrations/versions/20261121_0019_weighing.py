"""The rule and the limits a decision was made by, and who served its request.

Revision: 0019_weighing
Revises: 0018_retention_indexes
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0019_weighing"
down_revision = "0018_retention_indexes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("decisions", sa.Column("weighing", postgresql.JSONB(none_as_null=True), nullable=True))
    op.add_column("decisions", sa.Column("served_by", sa.Text(), nullable=True))
    # both candidates held the prefix equally; a session placed for the first time is what "cold" means
    op.execute("UPDATE decisions SET reason = 'prefix-equal' WHERE reason = 'prefix-hot'")
    op.execute("UPDATE decisions SET reason = 'prefix-outweighed' WHERE reason = 'slo-overloaded' AND policy = 'fairlead'")


def downgrade() -> None:
    op.execute("UPDATE decisions SET reason = 'slo-overloaded' WHERE reason = 'prefix-outweighed'")
    op.execute("UPDATE decisions SET reason = 'prefix-hot' WHERE reason = 'prefix-equal'")
    op.drop_column("decisions", "served_by")
    op.drop_column("decisions", "weighing")
