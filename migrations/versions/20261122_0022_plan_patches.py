"""Keep plans of any change: the object, the merge patch of its spec and the way back, in place of replicas.

Revision: 0022_plan_patches
Revises: 0021_decode
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0022_plan_patches"
down_revision = "0021_decode"
branch_labels = None
depends_on = None

_JSON = postgresql.JSONB(none_as_null=True, astext_type=sa.Text())


def upgrade() -> None:
    for name in ("object", "change", "inverse"):
        op.add_column("plans", sa.Column(name, _JSON, nullable=True))
    op.execute(
        "UPDATE plans SET object = jsonb_build_object('kind', 'InferencePool', 'namespace', pools.namespace, 'name', pools.name), "
        "change = jsonb_build_object('replicas', replicas_after), inverse = jsonb_build_object('replicas', replicas_before) "
        "FROM pools WHERE pools.id = plans.pool_id"
    )
    for name in ("object", "change", "inverse"):
        op.alter_column("plans", name, nullable=False)
    op.drop_column("plans", "replicas_before")
    op.drop_column("plans", "replicas_after")


def downgrade() -> None:
    """Plans of other changes are lost: they have no replicas."""
    op.execute("DELETE FROM plans WHERE kind <> 'scale'")
    for name, source in (("replicas_before", "inverse"), ("replicas_after", "change")):
        op.add_column("plans", sa.Column(name, sa.BigInteger(), nullable=True))
        op.execute(f"UPDATE plans SET {name} = CAST({source} ->> 'replicas' AS bigint)")  # noqa: S608 - both names stand above
        op.alter_column("plans", name, nullable=False)
    for name in ("object", "change", "inverse"):
        op.drop_column("plans", name)
