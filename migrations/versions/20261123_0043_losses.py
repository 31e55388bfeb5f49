"""An index of instances lost and back, which charts mark: few of the transitions are.

Revision: 0043_losses
Revises: 0042_pool_rollups
"""

from fairlead_api.infra.online_changes import build, drop

revision = "0043_losses"
down_revision = "0042_pool_rollups"
branch_labels = None
depends_on = None

_COLUMNS = ("pool_id", "at")


def upgrade() -> None:
    build("instance_transitions", _COLUMNS, where="after = 'Lost' OR before = 'Lost'")


def downgrade() -> None:
    drop("instance_transitions", _COLUMNS)
