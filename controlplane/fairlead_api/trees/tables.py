"""Tables of session trees, of sums over each session's turns for each task, and of finished tasks and their rollup."""

from sqlalchemy import BigInteger, Boolean, Column, DateTime, ForeignKeyConstraint, Index, Integer, Table, Text, func, text

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
    Column("count_at", DateTime(timezone=True), server_default=func.now()),
    ForeignKeyConstraint(["pool_id", "session"], ["session_trees.pool_id", "session_trees.session"], ondelete="CASCADE"),
    Index(None, "pool_id", "task"),
    Index(None, "pool_id", "ended_at"),
    Index(None, "count_at", postgresql_where=text("count_at IS NOT NULL")),
)
"""Sums over a session's turns for one task; the task is "" for turns that name no task. See `growing.Sums` for
`priority_class` and `answered`. `count_at` is the time of the next check whether the task is over
(`store.task_rollups`); NULL if the task was counted with these sums.
"""

TASK_SUMS = (
    *("tasks", "judged", "in_time", "broken_off", "moves", "wall_microseconds", "tool_tasks", "tool_microseconds"),
    *FIGURE_NAMES,
)
"""Columns that count finished tasks and sum up their figures. `judged` tasks had a target, and their last turn was
answered; `tool_tasks` counts tasks with a known time between turns, and `tool_microseconds` is the sum of these times.
"""

finished_tasks = Table(
    "finished_tasks",
    metadata,
    pool_column(primary_key=True),
    Column("named", Boolean, primary_key=True),
    Column("name", Text, primary_key=True),
    time_column("bucket"),
    class_column(),
    Column("slo_version", BigInteger, nullable=False),
    *(count_column(name) for name in TASK_SUMS),
    Index(None, "pool_id", "bucket"),
)
"""The tasks that were over when they were counted, each as a rollup of one task: `bucket` is the hour in which the task
was over. If the task continues, its row is deleted.
"""

task_rollups_1h = Table(
    "task_rollups_1h",
    metadata,
    pool_column(primary_key=True),
    Column("bucket", DateTime(timezone=True), primary_key=True),
    Column("priority_class", Text, primary_key=True),
    Column("slo_version", BigInteger, primary_key=True),
    *(count_column(name) for name in TASK_SUMS),
)
"""Sums over the finished tasks of an hour, by priority class and version of the objectives."""
