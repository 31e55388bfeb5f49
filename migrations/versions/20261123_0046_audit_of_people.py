"""An index of the audit entries of people, which entries of the system outnumber.

Revision: 0046_audit_of_people
Revises: 0045_rights_by_namespace
"""

import sqlalchemy as sa
from alembic import op

from fairlead_api.infra.online_changes import build_partial

revision = "0046_audit_of_people"
down_revision = "0045_rights_by_namespace"
branch_labels = None
depends_on = None

_BY_PEOPLE = (
    "NOT (role IN ('system-operator', 'system-router') OR left(action, 9) = 'operator.' "
    "OR (role = 'cluster' AND source ~ 'autoscaler|controller|operator'))"
)


def upgrade() -> None:
    build_partial("ix_audit_log_human", "audit_log", ["at", "id"], _BY_PEOPLE)


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.get_bind().execute(sa.text("DROP INDEX CONCURRENTLY IF EXISTS ix_audit_log_human"))
