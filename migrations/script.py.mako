"""${message}.

Revision: ${up_revision}
Revises: ${down_revision or 'nothing' | comma,n}

One idea; the release before works on with what this makes (docs/development.md, "Change the database"). Indexes and
rows of tables that grow: fairlead_api.infra.online_changes.
"""

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    ${downgrades if downgrades else "pass"}
