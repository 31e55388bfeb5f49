"""Early rejection's mode `Off` is spelled `Disabled`, also in the routing tables that routers are given until the operator speaks.

Revision: 0012_disabled_mode
Revises: 0011_audit_log
"""

import sqlalchemy as sa
from alembic import op

revision = "0012_disabled_mode"
down_revision = "0011_audit_log"
branch_labels = None
depends_on = None

STATEMENTS = (
    "UPDATE routing_tables SET content = jsonb_set(content, '{early_rejection,mode}', to_jsonb(CAST(:after AS text))) "
    "WHERE content #>> '{early_rejection,mode}' = :before",
    "UPDATE pools SET facts = jsonb_set(facts, '{table,early_rejection,mode}', to_jsonb(CAST(:after AS text))) "
    "WHERE facts #>> '{table,early_rejection,mode}' = :before",
)


def _respell(before: str, after: str) -> None:
    for statement in STATEMENTS:
        op.execute(sa.text(statement).bindparams(before=before, after=after))


def upgrade() -> None:
    _respell("Off", "Disabled")


def downgrade() -> None:
    _respell("Disabled", "Off")
