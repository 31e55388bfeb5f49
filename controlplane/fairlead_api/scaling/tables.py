"""Tables of scaling decisions, and of the desired number of instances per role."""

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Index,
    Table,
    Text,
)

from fairlead_api.infra.columns import count_column, json_column, metadata, pool_column, text_column, time_column

scaling_decisions = Table(
    "scaling_decisions",
    metadata,
    Column("id", Text, primary_key=True),
    pool_column(),
    time_column("at"),
    text_column("controller"),
    text_column("role"),
    text_column("mode"),
    count_column("current", None),
    count_column("recommended", None),
    count_column("replicas", None),
    text_column("verdict"),
    text_column("hold", null=True),
    text_column("cause"),
    count_column("lower", None),
    count_column("upper", None),
    text_column("lower_by", null=True),
    text_column("upper_by", null=True),
    text_column("reason"),
    json_column("need", null=True),
    json_column("imbalance", null=True),
    json_column("signals"),
    json_column("demand", null=True),
    Index(None, "pool_id", "at"),
    Index(None, "at", "id"),
)


wanted_replicas = Table(
    "wanted_replicas",
    metadata,
    pool_column(primary_key=True),
    Column("role", Text, primary_key=True),
    Column("at", DateTime(timezone=True), primary_key=True),
    Column("before", BigInteger),
    count_column("replicas", None),
)
"""Every change of the desired number of instances of a role; the number is zero if the role was removed."""
