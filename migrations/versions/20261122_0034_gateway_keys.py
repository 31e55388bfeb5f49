"""Keys of the gateway's clients; of each only the SHA-256 of its secret.

Revision: 0034_gateway_keys
Revises: 0033_known_caches
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0034_gateway_keys"
down_revision = "0033_known_caches"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "gateway_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("pools", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("models", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("requests_per_minute", sa.BigInteger(), nullable=True),
        sa.Column("tokens_per_minute", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gateway_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_gateway_keys_digest")),
    )
    op.create_index(op.f("ix_gateway_keys_created_at_id"), "gateway_keys", ["created_at", "id"], unique=False)


def downgrade() -> None:
    op.drop_table("gateway_keys")
