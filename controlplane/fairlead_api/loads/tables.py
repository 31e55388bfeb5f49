"""Tables that grow with traffic: decisions, rejections, arrivals and load samples by UTC day; rollups of samples."""

from sqlalchemy import JSON, REAL, BigInteger, Column, DateTime, Double, Index, Integer, PrimaryKeyConstraint, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY

from fairlead_api.infra.columns import class_column, count_column, json_column, metadata, pool_column, text_column, time_column
from fairlead_client.resources.heatmaps import METRICS

PARTITIONED = {
    "load_samples": "second",
    "decisions": "at",
    "rejections": "second",
    "arrivals": "second",
    "recorded_requests": "at",
    "slo_samples": "second",
}
"""Tables partitioned by UTC day, with the column that decides the day."""


decisions = Table(
    "decisions",
    metadata,
    text_column("id"),
    pool_column(),
    text_column("request"),
    text_column("session", null=True),
    time_column("at"),
    time_column("recorded_at", now=True),
    text_column("router"),
    text_column("policy"),
    count_column("table_version"),
    text_column("chosen"),
    text_column("runner_up", null=True),
    text_column("reason"),
    count_column("prompt_tokens"),
    Column("queued_seconds", Double),
    Column("held_seconds", Double),
    Column("ttft_seconds", Double),
    Column("sample_rate", Double, nullable=False),
    json_column("candidates"),
    json_column("weighing", null=True),
    text_column("served_by", null=True),
    text_column("decode", null=True),
    class_column(),
    text_column("named", null=True),
    *(Column(name, Integer) for name in ("chosen_rank", "runner_up_rank", "served_by_rank", "decode_rank")),
    *(text_column(name, null=True) for name in ("kept", "outcome", "rejection", "client_request")),
    *(Column(name, Double) for name in ("tpot_seconds", "ttft_target_seconds", "tpot_target_seconds")),
    json_column("attempts", null=True),
    PrimaryKeyConstraint("id", "at"),
    Index(None, "at", "id"),
    Index(None, "pool_id", "at"),
    Index(None, "session", "at"),
    Index(None, "request", "at"),
    Index(None, "client_request", "at"),
    Index(None, "chosen", "at"),
    Index(None, "reason", "at"),
    Index(None, "recorded_at"),
    postgresql_partition_by="RANGE (at)",
)

rejections = Table(
    "rejections",
    metadata,
    pool_column(),
    text_column("router"),
    time_column("second"),
    text_column("reason"),
    count_column("count"),
    Column("status", Integer, nullable=False),
    text_column("sample_request"),
    count_column("sample_prompt_tokens"),
    Column("retry_after_seconds", Double, nullable=False),
    Column("predicted_ttft_seconds", Double),
    class_column(),
    Index(None, "pool_id", "second"),
    postgresql_partition_by="RANGE (second)",
)

load_samples = Table(
    "load_samples",
    metadata,
    pool_column(),
    text_column("router"),
    text_column("instance"),
    time_column("second"),
    time_column("sent_at"),
    count_column("running"),
    count_column("waiting"),
    count_column("pending_prefill_tokens"),
    count_column("in_flight"),
    Column("kv_usage", REAL),
    count_column("requests"),
    count_column("completed"),
    count_column("failed"),
    count_column("cancelled"),
    count_column("prompt_tokens"),
    count_column("hit_tokens"),
    count_column("output_tokens"),
    Column("ttft_seconds", ARRAY(REAL), nullable=False),
    Column("tpot_seconds", ARRAY(REAL), nullable=False),
    count_column("ttft_within_slo"),
    count_column("ttft_total"),
    *(
        Column(name, BigInteger)
        for name in ("tpot_within_slo", "tpot_total", "within_slo", "judged_by_slo", "prefilled_tokens", "generated_tokens")
    ),
    Column("prefilling_seconds", REAL),
    Column("rank", Integer),
    Index(None, "pool_id", "second"),
    postgresql_partition_by="RANGE (second)",
)

arrivals = Table(
    "arrivals",
    metadata,
    pool_column(),
    text_column("router"),
    time_column("second"),
    count_column("requests"),
    count_column("prompt_tokens"),
    Column("prompt_tokens_squared", BigInteger),
    Index(None, "pool_id", "second"),
    postgresql_partition_by="RANGE (second)",
)

recorded_requests = Table(
    "recorded_requests",
    metadata,
    pool_column(),
    text_column("router"),
    time_column("at"),
    Column("session", BigInteger),
    count_column("prompt_tokens"),
    Column("output_tokens", BigInteger),
    Column("blocks", ARRAY(BigInteger), nullable=False),
    Column("sample_rate", REAL, nullable=False),
    text_column("instance", null=True),
    Column("rank", Integer),
    Column("sent_seconds", REAL),
    Column("ttft_seconds", REAL),
    Column("answer_seconds", REAL),
    Column("engine_prompt_tokens", BigInteger),
    Column("cached_tokens", BigInteger),
    Index(None, "pool_id", "at"),
    postgresql_partition_by="RANGE (at)",
)
"""Requests as they came, for simulations: no text, only lengths and hashes."""

SUMS = (
    "requests_total",
    "completed",
    "failed_total",
    "cancelled",
    "prompt_tokens",
    "hit_tokens",
    "output_tokens",
    "ttft_within_slo",
    "ttft_total",
    "tpot_within_slo",
    "tpot_total",
    "within_slo",
    "judged_by_slo",
    "generated_tokens",
)
"""Counts that a rollup sums, besides the maximum, sum and number of every heatmap metric's seconds."""


def _rollup(name: str) -> Table:
    """One instance in one bucket.

    For each metric it has the maximum, sum and number of its per-second values, so that longer buckets merge exactly.
    """
    parts: list[Column[object]] = []
    for metric in METRICS:
        parts += [Column(f"{metric}_max", REAL), Column(f"{metric}_sum", Double), Column(f"{metric}_n", Integer, nullable=False)]
    return Table(
        name,
        metadata,
        pool_column(primary_key=True),
        Column("bucket", DateTime(timezone=True), primary_key=True),
        Column("instance", Text, primary_key=True),
        *parts,
        *(count_column(total) for total in SUMS),
    )


load_rollups_10s = _rollup("load_rollups_10s")
load_rollups_1m = _rollup("load_rollups_1m")

heatmap_columns = Table(
    "heatmap_columns",
    metadata,
    pool_column(primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("bucket", DateTime(timezone=True), primary_key=True),
    text_column("roster"),
    Column("instances", JSON, nullable=False),
    *(Column(f"{metric}_{part}", JSON(none_as_null=True)) for metric in METRICS for part in ("max", "sum", "n")),
    Index(None, "step", "bucket"),
)
"""A column of a heatmap in one row: `step` seconds of all instances of a pool, from `bucket` on.

`instances` are their names, `roster` the digest of that list. Of each metric there are three lists in the same order:
what `_rollup` keeps of one instance. A metric that no instance has a value of is null. Single seconds (`step` 1) are
ten columns in one row, one after the other, and only `_max` has them.
"""

POOL_GAUGES = ("running", "waiting", "pending_prefill_tokens")
"""What a pool's rollups keep as a time integral: the sum over instances, times seconds."""


def _pool_rollup(name: str) -> Table:
    """One pool in one bucket, over all its instances.

    `seconds` are those of the bucket that something is known of, `instance_seconds` the same times the instances.
    """
    return Table(
        name,
        metadata,
        pool_column(primary_key=True),
        Column("bucket", DateTime(timezone=True), primary_key=True),
        Column("seconds", Integer, nullable=False),
        Column("instance_seconds", BigInteger, nullable=False),
        *(Column(gauge, Double) for gauge in POOL_GAUGES),
        Column("kv_usage_sum", Double),
        Column("kv_usage_n", BigInteger, nullable=False),
        *(count_column(total) for total in SUMS),
    )


pool_rollups_10s = _pool_rollup("pool_rollups_10s")
pool_rollups_1m = _pool_rollup("pool_rollups_1m")
pool_rollups_1h = _pool_rollup("pool_rollups_1h")

rollup_queue = Table(
    "rollup_queue",
    metadata,
    pool_column(primary_key=True),
    Column("bucket", DateTime(timezone=True), primary_key=True),
    Column("router", Text, primary_key=True),
)
