"""Tables of session trees, and of sums over each session's turns for each task."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKeyConstraint, Index, Integer, Table, Text

from fairlead.session_trees import FIGURE_NAMES
from fairlead_api.infra.columns import class_column, count_column, metadata, pool_column, text_column, time_column

session_trees = Table(
    "session_trees",
    metadata,
    pool_column(primary_key=True),
    Column("session", Text, primary_key=True),
    count_column("number", None),
    text_column("root"),
    text_column("parent", null=True),
    text_column("link", null=True),
    text_column("evidence", null=True),
    time_column("first_at"),
    time_column("last_at"),
    Column("first_blocks", Integer, nullable=False),
    Column("last_blocks", Integer, nullable=False),
    Column("last_block", BigInteger),
    Index(None, "pool_id", "root", "first_at"),
    Index(None, "pool_id", "last_block"),
    Index(None, "last_at"),
)
"""Every session with recorded requests: its position in a tree, and how far its conversation extends
(`fairlead.session_trees.Reach`). `number` identifies the session in `recorded_requests`; `last_at` is the arrival of
its newest request.
"""

task_turns = Table(
    "task_turns",
    metadata,
    pool_column(primary_key=True),
    Column("session", Text, primary_key=True),
    Column("task", Text, primary_key=True),
    time_column("first_at"),
    time_column("ended_at"),
    class_column(),
    Column("answered", Boolean, nullable=False, server_default="true"),
    *(count_column(name) for name in FIGURE_NAMES),
    ForeignKeyConstraint(["pool_id", "session"], ["session_trees.pool_id", "session_trees.session"], ondelete="CASCADE"),
    Index(None, "pool_id", "task"),
    Index(None, "pool_id", "ended_at"),
)
"""Sums over a session's turns for one task; the task is "" for turns that name no task. See `growing.Sums` for
`priority_class` and `answered`.
"""
