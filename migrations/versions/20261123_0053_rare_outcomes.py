"""Find moves of rare outcomes and all that a matrix counts of them in one small index, without their scattered rows.

Revision: 0053_rare_outcomes
Revises: 0052_joined_values
"""

from alembic import op

from fairlead_api.infra import online_changes

revision = "0053_rare_outcomes"
down_revision = "0052_joined_values"
branch_labels = None
depends_on = None

TABLES = ("migrations", "reroutes")
COUNTED = (
    *("pool_id", "source", "target", "trigger", "predicted_source_ttft_seconds", "actual_ttft_seconds"),
    *("paid_off", "tokens_moved", "tokens_recomputed"),
)


def upgrade() -> None:
    for table in TABLES:
        online_changes.build_partial(
            f"ix_{table}_rare_outcomes", table, ["outcome", "at"], "outcome NOT IN ('underway', 'completed')", include=COUNTED
        )


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP INDEX IF EXISTS ix_{table}_rare_outcomes")
