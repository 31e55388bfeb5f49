"""Adds to gateway keys: the digest of the secret before a rotation, and the time until which that secret is still
accepted.

Revision: 0070_former_secrets Revises: 0069_proposals
"""

import sqlalchemy as sa
from alembic import op

revision = "0070_former_secrets"
down_revision = "0069_proposals"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("gateway_keys", sa.Column("former_digest", sa.LargeBinary))
    op.add_column("gateway_keys", sa.Column("former_until", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("gateway_keys", "former_until")
    op.drop_column("gateway_keys", "former_digest")
