"""How much the prompts that arrive differ in length, from routers that tell it.

Revision: 0029_prompt_squares
Revises: 0028_scaling_demand
"""

import sqlalchemy as sa
from alembic import op

revision = "0029_prompt_squares"
down_revision = "0028_scaling_demand"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("arrivals", sa.Column("prompt_tokens_squared", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("arrivals", "prompt_tokens_squared")
