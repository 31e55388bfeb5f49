"""Tables of moves and their rollups. A session migration changes the session's binding; a re-route of a request does
not.
"""

from sqlalchemy import BigInteger, Boolean, Column, Computed, DateTime, Double, Index, Integer, Table, Text, false, text

from fairlead_api.infra.columns import count_column, metadata, pool_column, text_column, time_column

PAID_OFF = (
    "CASE WHEN actual_ttft_seconds >= predicted_source_ttft_seconds THEN false "
    "WHEN actual_ttft_seconds < predicted_source_ttft_seconds AND benefit_seconds > 0::double precision THEN true "
    "ELSE NULL::boolean END"
)
"""SQL for whether the measured TTFT of a move was below the TTFT predicted for staying.

True only if a gain was predicted; null while the measured or the predicted TTFT is unknown.
"""

RARE = "outcome NOT IN ('underway', 'completed')"
"""SQL condition for moves with rare outcomes. A matrix counts them with the help of a small index, because their rows
lie far apart.

A statement must repeat this condition literally; otherwise the database does not use the index.
"""

_COUNTED = [
    *("pool_id", "source", "target", "trigger", "predicted_source_ttft_seconds", "actual_ttft_seconds"),
    *("paid_off", "tokens_moved", "tokens_recomputed"),
]


def _moves(name: str, *, bound: bool) -> Table:
    """Return a table of moves: of sessions if `bound` is True, otherwise of single requests. Predictions are null if
    nothing could be predicted.
    """
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
    """Return a table of rollups of a pool's moves per bucket, including the seconds of TTFT that the `compared`
    migrations saved.
    """
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
"""Minutes whose moves have changed since the minute's rollup; a minute may have several rows.

Triggers add rows in the transaction that adds a move or sets its outcome, so no writer can omit them. Rows are only
added, so no writer waits for another writer.
"""
