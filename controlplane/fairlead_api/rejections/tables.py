"""The table of refused requests, partitioned by UTC day."""

from sqlalchemy import Column, Double, Index, Integer, Table

from fairlead_api.infra.columns import class_column, count_column, metadata, pool_column, text_column, time_column

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
