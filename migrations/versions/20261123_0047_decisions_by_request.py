"""Find a decision by the id of its request, however old it is.

Revision: 0047_decisions_by_request
Revises: 0046_audit_of_people
"""

from alembic import op

from fairlead_api.infra import online_changes

revision = "0047_decisions_by_request"
down_revision = "0046_audit_of_people"
branch_labels = None
depends_on = None


def upgrade() -> None:
    online_changes.build_on_partitions("decisions", ["request", "at"])


def downgrade() -> None:
    op.execute(f"DROP INDEX IF EXISTS {online_changes.index_name('decisions', ['request', 'at'])}")
