"""Serve every filter of the lists of history from an index, however many rows there are.

Revision: 0016_list_indexes
Revises: 0015_binding_chains
"""

from alembic import op

from fairlead_api.infra.online_changes import build, build_on_partitions, drop, index_name

revision = "0016_list_indexes"
down_revision = "0015_binding_chains"
branch_labels = None
depends_on = None

_MOVES: list[tuple[str, tuple[str, ...]]] = [
    (table, (column, "at")) for table in ("migrations", "reroutes") for column in ("session", "source", "target", "trigger", "outcome")
]
_SESSIONS: list[tuple[str, tuple[str, ...]]] = [("sessions", ("instance", "last_seen_at")), ("sessions", ("pool_id", "last_seen_at"))]
_AUDIT: list[tuple[str, tuple[str, ...]]] = [
    ("audit_log", ("at", "id")),
    ("audit_log", ("object", "at")),
    ("audit_log", ("actor", "at")),
    ("audit_log", ("action", "at")),
]
_DECISIONS: list[tuple[str, ...]] = [("session", "at"), ("chosen", "at"), ("reason", "at")]
_REPLACED: list[tuple[str, tuple[str, ...]]] = [
    *((table, ("pool_id", "session", "at")) for table in ("migrations", "reroutes")),
    ("audit_log", ("at",)),
    ("audit_log", ("object",)),
]


def upgrade() -> None:
    for table, columns in (*_MOVES, *_SESSIONS, *_AUDIT):
        build(table, columns)
    for of_decisions in _DECISIONS:
        build_on_partitions("decisions", of_decisions)
    for table, columns in _REPLACED:
        drop(table, columns)


def downgrade() -> None:
    for table, columns in _REPLACED:
        build(table, columns)
    for of_decisions in _DECISIONS:
        drop_partitioned(of_decisions)
    for table, columns in (*_MOVES, *_SESSIONS, *_AUDIT):
        drop(table, columns)


def drop_partitioned(columns: tuple[str, ...]) -> None:
    """Needs a short lock of the whole table: partitioned indexes cannot be dropped concurrently."""
    op.execute(f"DROP INDEX IF EXISTS {index_name('decisions', columns)}")
