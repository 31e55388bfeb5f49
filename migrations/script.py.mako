"""${message}.

Revision: ${up_revision}
Revises: ${down_revision or 'nothing' | comma,n}

One idea; the release before works on with what this makes (docs/development.md, "Change the database"). Indexes of
tables that grow: fairlead_api.infra.index_building; their rows: fairlead_api.infra.backfilling.
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
