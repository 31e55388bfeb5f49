"""Adds a trigger that makes a counted task due for counting again when a process of an older release adds a turn to it.

Processes from before 0082 add to the sums of a task and leave `count_at` null, so without the trigger a late turn is
not counted until the task's next turn. During a rollout, such processes run beside newer ones.

Revision: 0083_late_turns_are_due Revises: 0082_finished_tasks
"""

from alembic import op

revision = "0083_late_turns_are_due"
down_revision = "0082_finished_tasks"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE OR REPLACE FUNCTION make_late_turns_due() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN NEW.count_at = NEW.ended_at; RETURN NEW; END $$"
    )
    op.execute(
        "CREATE OR REPLACE TRIGGER make_late_turns_due BEFORE UPDATE ON task_turns FOR EACH ROW "
        "WHEN (NEW.count_at IS NULL AND NEW.turns <> OLD.turns) EXECUTE FUNCTION make_late_turns_due()"
    )


def downgrade() -> None:
    op.execute("DROP TRIGGER make_late_turns_due ON task_turns")
    op.execute("DROP FUNCTION make_late_turns_due()")
