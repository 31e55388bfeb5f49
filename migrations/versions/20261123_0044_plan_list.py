"""List the plans of all pools, newest first.

Revision: 0044_plan_list
Revises: 0043_losses
"""

from fairlead_api.infra import online_changes

revision = "0044_plan_list"
down_revision = "0043_losses"
branch_labels = None
depends_on = None


def upgrade() -> None:
    online_changes.build("plans", ["created_at", "id"])


def downgrade() -> None:
    online_changes.drop("plans", ["created_at", "id"])
