"""List the plans of all pools, newest first.

Revision: 0044_plan_list
Revises: 0043_losses
"""

from fairlead_api.infra import index_building

revision = "0044_plan_list"
down_revision = "0043_losses"
branch_labels = None
depends_on = None


def upgrade() -> None:
    index_building.build("plans", ["created_at", "id"])


def downgrade() -> None:
    index_building.drop("plans", ["created_at", "id"])
