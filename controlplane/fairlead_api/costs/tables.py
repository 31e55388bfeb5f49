"""Tables of instances' lives and prices, of their busy time, and of the usage of requests by hour. A *life* is the time
in which a pod was an instance.
"""

from sqlalchemy import BigInteger, Column, DateTime, Index, Table, Text

from fairlead_api.infra.columns import count_column, metadata, pool_column, text_column, time_column

instance_lives = Table(
    "instance_lives",
    metadata,
    pool_column(primary_key=True),
    Column("pod", Text, primary_key=True),
    Column("began_at", DateTime(timezone=True), primary_key=True),
    text_column("instance"),
    text_column("role"),
    time_column("ended_at", null=True),
    Index(None, "pool_id", "ended_at"),
)
"""Lives of instances. A life is the time in which a pod was an instance of one role; a pod whose role changes has
several lives.
"""

instance_prices = Table(
    "instance_prices",
    metadata,
    pool_column(primary_key=True),
    Column("role", Text, primary_key=True),
    Column("since", DateTime(timezone=True), primary_key=True),
    Column("micros_per_hour", BigInteger),
    text_column("currency"),
)
"""Prices per instance hour, each in force until the next price of the same role; NULL = no price."""

measured_prices = Table(
    "measured_prices",
    metadata,
    pool_column(primary_key=True),
    Column("role", Text, primary_key=True),
    Column("bucket", DateTime(timezone=True), primary_key=True),
    Column("micros_per_hour", BigInteger, nullable=False),
    text_column("currency"),
)
"""Prices per instance hour that OpenCost measured, each for the hour that begins at `bucket`."""

work_hours = Table(
    "work_hours",
    metadata,
    pool_column(primary_key=True),
    Column("bucket", DateTime(timezone=True), primary_key=True),
    Column("role", Text, primary_key=True),
    count_column("busy_milliseconds"),
    count_column("prefilling_milliseconds"),
)
"""Busy time of the instances of a role within an hour, summed over the instances."""

USED = ("requests", "prefill_tokens", "hit_tokens", "output_tokens")
"""Columns that count the usage of requests."""

usage_hours = Table(
    "usage_hours",
    metadata,
    pool_column(primary_key=True),
    Column("bucket", DateTime(timezone=True), primary_key=True),
    Column("key_id", Text, primary_key=True),
    Column("priority_class", Text, primary_key=True),
    *(count_column(name) for name in USED),
    Index(None, "key_id", "bucket"),
)
"""The usage of the requests of each gateway key and priority class in an hour. The key is empty for requests without a
key.
"""

session_usage_hours = Table(
    "session_usage_hours",
    metadata,
    pool_column(primary_key=True),
    Column("bucket", DateTime(timezone=True), primary_key=True),
    Column("session", Text, primary_key=True),
    *(count_column(name) for name in USED),
)
"""The usage of the requests of each session in an hour. The session is empty for requests without a session."""
