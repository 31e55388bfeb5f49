"""Tables of requests by outcome, priority class and version of the SLO: samples, partitioned by UTC day, and their
rollups.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Double,
    Index,
    Integer,
    Table,
    Text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from fairlead_api.infra.columns import class_column, count_column, metadata, pool_column, text_column, time_column

SLO_SUMS = ("judged", "within_slo", "ttft_within_slo", "tpot_within_slo", "tpot_total", "refused", "failed")
"""Columns that count requests. Rollups sum these columns."""


def _cells() -> "tuple[Column[object], Column[object]]":
    """Return the columns of the latency cells of judged requests (`fairlead.latency_cells`) and of the number of
    requests in each cell.
    """
    return Column("cells", ARRAY(Integer), nullable=False), Column("counts", ARRAY(BigInteger), nullable=False)


slo_samples = Table(
    "slo_samples",
    metadata,
    pool_column(),
    text_column("router"),
    time_column("second"),
    class_column(),
    Column("slo_version", BigInteger),
    *(count_column(name) for name in SLO_SUMS),
    *_cells(),
    Index(None, "pool_id", "second"),
    postgresql_partition_by="RANGE (second)",
)


def _rollup(name: str) -> Table:
    return Table(
        name,
        metadata,
        pool_column(primary_key=True),
        Column("bucket", DateTime(timezone=True), primary_key=True),
        Column("priority_class", Text, primary_key=True),
        Column("slo_version", BigInteger, primary_key=True),
        *(count_column(sum_of) for sum_of in SLO_SUMS),
        *_cells(),
    )


slo_rollups_1m = _rollup("slo_rollups_1m")
slo_rollups_1h = _rollup("slo_rollups_1h")

slo_configs = Table(
    "slo_configs",
    metadata,
    pool_column(primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("ttft_seconds", Double, nullable=False),
    Column("tpot_seconds", Double, nullable=False),
    Column("percentile", Double, nullable=False),
    time_column("active_from"),
    time_column("active_until", null=True),
    Column("classes", JSONB, nullable=False, server_default="[]"),
    Column("revision", BigInteger),
    Column("task", JSONB, nullable=False, server_default="[]"),
)
