"""Simulations that show what would help a pool: what is looked for (`sizing`) and what was found (`sized`).

Revision: 0062_sizing
Revises: 0061_move_causes
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0062_sizing"
down_revision = "0061_move_causes"
branch_labels = None
depends_on = None
contract = "the last release has no simulations, and the unique index asks nothing of rows that it writes"

_INDEX = "uq_simulations_sizing_at_work"


def upgrade() -> None:
    for column in ("sizing", "sized"):
        op.add_column("simulations", sa.Column(column, JSONB))
    of_advice = sa.text("state IN ('queued', 'running') AND sizing IS NOT NULL")
    op.create_index(_INDEX, "simulations", ["pool_id"], unique=True, postgresql_where=of_advice)


def downgrade() -> None:
    op.execute("DELETE FROM simulations WHERE sizing IS NOT NULL")
    op.drop_index(_INDEX, table_name="simulations")
    for column in ("sized", "sizing"):
        op.drop_column("simulations", column)
