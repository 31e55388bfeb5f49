"""Tables of sessions: the present holder of each session, its history, and the session moves that were not stored
because another router's change came first.
"""

from sqlalchemy import BigInteger, CheckConstraint, Column, DateTime, ForeignKeyConstraint, Index, Integer, Table, Text

from fairlead_api.infra.columns import count_column, metadata, pool_column, text_column, time_column

sessions = Table(
    "sessions",
    metadata,
    pool_column(primary_key=True),
    Column("session", Text, primary_key=True),
    text_column("instance", null=True),
    count_column("version", None),
    text_column("reason"),
    text_column("router"),
    time_column("bound_at"),
    time_column("migrated_at", null=True),
    time_column("last_seen_at"),
    count_column("migrations"),
    count_column("context_tokens"),
    text_column("change", null=True),
    time_column("shared_at", null=True),
    Column("rank", Integer),
    Index(None, "pool_id", "instance"),
    Index(None, "last_seen_at"),
    Index(None, "instance", "last_seen_at"),
    Index(None, "pool_id", "last_seen_at"),
)

session_names = Table(
    "session_names",
    metadata,
    Column("pool_id", Integer, primary_key=True),
    Column("session", Text, primary_key=True),
    ForeignKeyConstraint(["pool_id", "session"], ["sessions.pool_id", "sessions.session"], ondelete="CASCADE"),
    Index(None, "session", postgresql_using="gin", postgresql_ops={"session": "gin_trgm_ops"}),
)
"""Every session's name once, for searches by a part of the name.

A trigger on `sessions` fills it. The names are in a separate table because the rows of `sessions` change with every
request, and a trigram index on `sessions` would add thirty entries at each change.
"""


bindings = Table(
    "bindings",
    metadata,
    pool_column(primary_key=True),
    Column("session", Text, primary_key=True),
    Column("version", BigInteger, primary_key=True),
    text_column("instance"),
    text_column("reason"),
    text_column("router"),
    time_column("bound_at"),
    time_column("released_at", null=True),
    text_column("migration", null=True),
    Column("rank", Integer),
    CheckConstraint("released_at >= bound_at", "ends_after_it_began"),
    Index(None, "released_at"),
)

lost_moves = Table(
    "lost_moves",
    metadata,
    pool_column(primary_key=True),
    Column("router", Text, primary_key=True),
    Column("minute", DateTime(timezone=True), primary_key=True),
    count_column("moves"),
)
"""Numbers of session moves of routers that were not stored, because an earlier change of the session by another router
took precedence.
"""
