"""Simulations of plans' effects, any number of a pool at once.

Revision: 0049_plan_simulations
Revises: 0048_begun_plans
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0049_plan_simulations"
down_revision = "0048_begun_plans"
branch_labels = None
depends_on = None
contract = "the last release has no simulations, and both unique indexes ask nothing new of rows without a plan"

AT_WORK = "state IN ('queued', 'running')"


def upgrade() -> None:
    op.add_column("simulations", sa.Column("plan", sa.Text(), nullable=True))
    op.add_column("simulations", sa.Column("plan_runs", postgresql.JSONB(), nullable=True))
    op.add_column("simulations", sa.Column("trialled", postgresql.JSONB(), nullable=True))
    op.create_index(
        "uq_simulations_asked_at_work",
        "simulations",
        ["pool_id"],
        unique=True,
        postgresql_where=sa.text(f"{AT_WORK} AND plan IS NULL"),
    )
    op.create_index("uq_simulations_plan", "simulations", ["plan"], unique=True, postgresql_where=sa.text("plan IS NOT NULL"))
    op.drop_index("uq_simulations_at_work", table_name="simulations")


def downgrade() -> None:
    op.execute("DELETE FROM simulations WHERE plan IS NOT NULL")
    op.create_index("uq_simulations_at_work", "simulations", ["pool_id"], unique=True, postgresql_where=sa.text(AT_WORK))
    op.drop_index("uq_simulations_plan", table_name="simulations")
    op.drop_index("uq_simulations_asked_at_work", table_name="simulations")
    op.drop_column("simulations", "trialled")
    op.drop_column("simulations", "plan_runs")
    op.drop_column("simulations", "plan")
