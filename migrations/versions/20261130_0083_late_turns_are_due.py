"""Older processes make a counted task due again when they add a turn to it, without knowing that.

A process from before 0082 adds to the sums of a task and leaves `count_at` null, so its late turn stayed uncounted until
the task's next turn. Such a process may run beside newer ones for as long as a release is rolled out.

Revision: 0083_late_turns_are_due
Revises: 0082_finished_tasks
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
