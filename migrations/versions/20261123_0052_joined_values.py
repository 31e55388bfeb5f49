"""An aggregate that joins arrays, so that a second's latencies of all routers come out of the one pass over its samples.

Revision: 0052_joined_values
Revises: 0051_heatmap_columns
"""

from alembic import op

revision = "0052_joined_values"
down_revision = "0051_heatmap_columns"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE OR REPLACE AGGREGATE joined_values(real[]) (SFUNC = array_cat, STYPE = real[], INITCOND = '{}')")


def downgrade() -> None:
    op.execute("DROP AGGREGATE IF EXISTS joined_values(real[])")
