"""Early rejection's mode `Off` is spelled `Disabled`, also in the routing tables that routers are given until the operator speaks.

Revision: 0012_disabled_mode
Revises: 0011_audit_log
"""

from alembic import op

revision = "0012_disabled_mode"
down_revision = "0011_audit_log"
branch_labels = None
depends_on = None

PLACES = (("routing_tables", "content", "{early_rejection,mode}"), ("pools", "facts", "{table,early_rejection,mode}"))


def _respell(before: str, after: str) -> None:
    for table, column, path in PLACES:
        op.execute(f"UPDATE {table} SET {column} = jsonb_set({column}, '{path}', '\"{after}\"') WHERE {column} #>> '{path}' = '{before}'")


def upgrade() -> None:
    _respell("Off", "Disabled")


def downgrade() -> None:
    _respell("Disabled", "Off")
