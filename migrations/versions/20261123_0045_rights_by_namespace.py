"""Rights by namespace; the address that a web session was opened from, and the groups of its Kubernetes user.

Revision: 0045_rights_by_namespace
Revises: 0044_plan_list
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0045_rights_by_namespace"
down_revision = "0044_plan_list"
branch_labels = None
depends_on = None

_CREDENTIALS = ("api_tokens", "login_links", "web_sessions")


def upgrade() -> None:
    for table in _CREDENTIALS:
        op.add_column(table, sa.Column("namespaces", postgresql.JSONB(), nullable=False, server_default="{}"))
    op.add_column("web_sessions", sa.Column("address", sa.Text(), nullable=True))
    op.add_column("web_sessions", sa.Column("groups", postgresql.JSONB(), nullable=False, server_default="[]"))


def downgrade() -> None:
    for table in _CREDENTIALS:  # what is good in some namespaces only must not outlive that restriction
        op.execute(sa.delete(sa.table(table, sa.column("role"))).where(sa.column("role") == "none"))
    op.drop_column("web_sessions", "groups")
    op.drop_column("web_sessions", "address")
    for table in _CREDENTIALS:
        op.drop_column(table, "namespaces")
