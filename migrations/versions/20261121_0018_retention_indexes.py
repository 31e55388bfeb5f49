"""Find what is too old without reading whole tables.

Revision: 0018_retention_indexes
Revises: 0017_session_names
"""

from fairlead_api.infra.online_changes import build, drop

revision = "0018_retention_indexes"
down_revision = "0017_session_names"
branch_labels = None
depends_on = None

_INDEXES = [("bindings", ("released_at",)), ("instance_transitions", ("at",)), ("pool_events", ("at",))]


def upgrade() -> None:
    for table, columns in _INDEXES:
        build(table, columns)


def downgrade() -> None:
    for table, columns in _INDEXES:
        drop(table, columns)
