"""Tables of moves: session migrations, part of a session's bindings, re-routes of requests, which are not; rollups."""

from sqlalchemy import BigInteger, Boolean, Column, Computed, DateTime, Double, Index, Integer, Table, Text, false, text

from fairlead_api.infra.columns import count_column, metadata, pool_column, text_column, time_column

PAID_OFF = (
    "CASE WHEN actual_ttft_seconds >= predicted_source_ttft_seconds THEN false "
    "WHEN actual_ttft_seconds < predicted_source_ttft_seconds AND benefit_seconds > 0::double precision THEN true "
    "ELSE NULL::boolean END"
)
"""Whether the real TTFT was below the one predicted for staying.

True only where a gain was predicted; unknown while either number is.
"""

RARE = "outcome NOT IN ('underway', 'completed')"
"""Moves that a matrix of their outcome counts out of a small index, as their rows lie far apart.

A statement must say so in these words, as the database does not infer it from the outcome asked for.
"""

_COUNTED = [
    *("pool_id", "source", "target", "trigger", "predicted_source_ttft_seconds", "actual_ttft_seconds"),
    *("paid_off", "tokens_moved", "tokens_recomputed"),
]


def _moves(name: str, *, bound: bool) -> Table:
    """A table of moves. `bound` moves belong to a session; predictions are null where nothing could be predicted."""
    return Table(
        name,
        metadata,
        Column("id", Text, primary_key=True),
        pool_column(),
        text_column("session", null=not bound),
        text_column("request", null=bound),
        text_column("source"),
        text_column("target"),
        text_column("trigger"),
        time_column("at"),
        time_column("recorded_at", now=True),
        text_column("router"),
        Column("predicted_source_ttft_seconds", Double),
        Column("predicted_target_ttft_seconds", Double),
        Column("benefit_seconds", Double),
        Column("actual_ttft_seconds", Double),
        count_column("tokens_moved"),
        count_column("tokens_recomputed"),
        text_column("outcome"),
        Column("paid_off", Boolean, Computed(PAID_OFF, persisted=True)),
        Column("source_rank", Integer),
        Column("target_rank", Integer),
        Column("crossed", Double),
        Column("threshold", Double),
        text_column("crossed_unit", null=True),
        Column("source_hit_tokens", BigInteger),
        Column("target_hit_tokens", BigInteger),
        Column("least_gain_seconds", Double),
        text_column("cache", null=True),
        Column("transfer_seconds", Double),
        Column("predicted_transfer_seconds", Double),
        Column("transfer_bytes", BigInteger),
        Column("handed_over", Boolean, nullable=False, server_default=false()),
        Index(None, "at", "id"),
        Index(None, "pool_id", "at"),
        Index(None, "session", "at"),
        Index(None, "source", "at"),
        Index(None, "target", "at"),
        Index(None, "trigger", "at"),
        Index(None, "outcome", "at"),
        Index(f"ix_{name}_rare_outcomes", "outcome", "at", postgresql_include=_COUNTED, postgresql_where=text(RARE)),
        Index(None, "recorded_at"),
    )


migrations = _moves("migrations", bound=True)
reroutes = _moves("reroutes", bound=False)


def _rollup(name: str) -> Table:
    """How many moves a pool had in one bucket, and the seconds of TTFT that `compared` migrations won."""
    return Table(
        name,
        metadata,
        pool_column(primary_key=True),
        Column("bucket", DateTime(timezone=True), primary_key=True),
        count_column("migrations"),
        count_column("reroutes"),
        count_column("compared"),
        Column("seconds_won", Double, nullable=False, server_default="0"),
    )


move_rollups_1m = _rollup("move_rollups_1m")
move_rollups_1h = _rollup("move_rollups_1h")

move_rollup_queue = Table(
    "move_rollup_queue",
    metadata,
    pool_column(),
    Column("minute", DateTime(timezone=True), nullable=False),
    Index(None, "pool_id", "minute"),
)
"""Minutes whose moves changed since they were rolled up, in any number of rows each.

Triggers write them in the transaction that adds a move or sets its outcome, so no writer can forget one. No row is
written twice, so no writer waits for another.
"""
