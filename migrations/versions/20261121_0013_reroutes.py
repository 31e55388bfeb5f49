"""Re-routes of requests apart from migrations of sessions, and what could not be predicted as null.

Revision: 0013_reroutes
Revises: 0012_disabled_mode
"""

# ruff: noqa: S608 (statements are put together from this module's own constants)

import sqlalchemy as sa
from alembic import op

revision = "0013_reroutes"
down_revision = "0012_disabled_mode"
branch_labels = None
depends_on = None

_COLUMNS = (
    "id, pool_id, session, request, source, target, trigger, at, recorded_at, router, predicted_source_ttft_seconds, "
    "predicted_target_ttft_seconds, benefit_seconds, actual_ttft_seconds, tokens_moved, tokens_recomputed, outcome"
)
_PAID_OFF = (
    "CASE WHEN actual_ttft_seconds >= predicted_source_ttft_seconds THEN false "
    "WHEN actual_ttft_seconds < predicted_source_ttft_seconds AND benefit_seconds > 0::double precision THEN true "
    "ELSE NULL::boolean END"
)
_PREDICTIONS = ("predicted_source_ttft_seconds", "predicted_target_ttft_seconds", "benefit_seconds")
_NO_BINDING = "m.kind = 'request' AND NOT EXISTS (SELECT 1 FROM bindings b WHERE b.migration = m.id)"


def upgrade() -> None:
    op.create_table(
        "reroutes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("session", sa.Text(), nullable=True),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("predicted_source_ttft_seconds", sa.Double(), nullable=True),
        sa.Column("predicted_target_ttft_seconds", sa.Double(), nullable=True),
        sa.Column("benefit_seconds", sa.Double(), nullable=True),
        sa.Column("actual_ttft_seconds", sa.Double(), nullable=True),
        sa.Column("tokens_moved", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tokens_recomputed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("paid_off", sa.Boolean(), sa.Computed(_PAID_OFF, persisted=True), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_reroutes_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reroutes")),
    )
    op.create_index(op.f("ix_reroutes_at_id"), "reroutes", ["at", "id"], unique=False)
    op.create_index(op.f("ix_reroutes_pool_id_at"), "reroutes", ["pool_id", "at"], unique=False)
    op.create_index(op.f("ix_reroutes_pool_id_session_at"), "reroutes", ["pool_id", "session", "at"], unique=False)
    op.create_index(op.f("ix_reroutes_recorded_at"), "reroutes", ["recorded_at"], unique=False)
    columns = _COLUMNS.replace("request,", "coalesce(request, ''),", 1)
    op.execute(f"INSERT INTO reroutes ({_COLUMNS}) SELECT {columns} FROM migrations m WHERE {_NO_BINDING}")
    op.execute(f"DELETE FROM migrations m WHERE ({_NO_BINDING}) OR m.session IS NULL")
    op.drop_column("migrations", "kind")
    op.alter_column("migrations", "session", nullable=False)
    for name in _PREDICTIONS:
        op.alter_column("migrations", name, nullable=True)
    # moves made by the control API itself had zeros where nobody had predicted anything
    nothing = ", ".join(f"{name} = NULL" for name in _PREDICTIONS)
    op.execute(f"UPDATE migrations SET {nothing} WHERE request IS NULL AND predicted_source_ttft_seconds = 0")
    op.add_column("migrations", sa.Column("paid_off", sa.Boolean(), sa.Computed(_PAID_OFF, persisted=True), nullable=True))


def downgrade() -> None:
    op.drop_column("migrations", "paid_off")
    for name in _PREDICTIONS:
        op.execute(f"UPDATE migrations SET {name} = 0 WHERE {name} IS NULL")
        op.execute(f"UPDATE reroutes SET {name} = 0 WHERE {name} IS NULL")
        op.alter_column("migrations", name, nullable=False)
    op.alter_column("migrations", "session", nullable=True)
    op.add_column("migrations", sa.Column("kind", sa.Text(), server_default="session", nullable=False))
    op.alter_column("migrations", "kind", server_default=None)
    op.execute(f"INSERT INTO migrations ({_COLUMNS}, kind) SELECT {_COLUMNS}, 'request' FROM reroutes")
    op.drop_index(op.f("ix_reroutes_recorded_at"), table_name="reroutes")
    op.drop_index(op.f("ix_reroutes_pool_id_session_at"), table_name="reroutes")
    op.drop_index(op.f("ix_reroutes_pool_id_at"), table_name="reroutes")
    op.drop_index(op.f("ix_reroutes_at_id"), table_name="reroutes")
    op.drop_table("reroutes")
