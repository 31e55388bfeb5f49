"""Tables of arrivals and load samples, partitioned by UTC day, and of their rollups by instance and by pool."""

from sqlalchemy import JSON, REAL, BigInteger, Column, DateTime, Double, Index, Integer, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY

from fairlead_api.infra.columns import count_column, metadata, pool_column, text_column, time_column
from fairlead_client.resources.heatmaps import METRICS

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
"""Counts that a rollup sums. In addition, a rollup has the maximum, sum and number of seconds of every heatmap
metric.
"""


def _rollup(name: str) -> Table:
    """Return the table of rollups with one row per instance and bucket.

    For each metric it has the maximum, sum and number of the per-second values, from which the values of longer buckets
    are computed exactly. `busy_seconds` are the seconds in which the instance had a request, `prefilling_seconds` the
    part of them in which a prompt was computed.
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
        count_column("busy_seconds"),
        Column("prefilling_seconds", Double, nullable=False, server_default="0"),
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
"""A column of a heatmap as one database row: `step` seconds of all instances of a pool, from `bucket` on.

`instances` lists the instances' names, and `roster` is the digest of that list. Each metric has three lists in the same
order, with the values that `_rollup` keeps per instance. A metric is null if no instance has a value. For single
seconds (`step` 1), one row has ten columns one after the other, and only `_max` is filled.
"""

POOL_GAUGES = ("running", "waiting", "pending_prefill_tokens")
"""Gauges that a pool's rollups keep as a time integral: the sum over instances, times seconds."""


def _pool_rollup(name: str) -> Table:
    """Return the table of rollups with one row per pool and bucket, over all instances.

    `seconds` is the number of seconds of the bucket for which anything was recorded; `instance_seconds` sums the number
    of instances over these seconds.
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
