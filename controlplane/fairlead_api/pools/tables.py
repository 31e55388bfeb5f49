"""Tables with data reported from the cluster: pools, their history and scaling, instances, routing tables,
acknowledgements.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from fairlead_api.infra.columns import count_column, json_column, metadata, pool_column, text_column, time_column

pools = Table(
    "pools",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    text_column("namespace"),
    text_column("name"),
    text_column("uid"),
    count_column("generation", None),
    text_column("resource_version"),
    text_column("model"),
    json_column("spec"),
    json_column("spec_in_force", null=True),
    json_column("facts", null=True),
    json_column("labels"),
    json_column("annotations"),
    text_column("changed_by"),
    text_column("problem", null=True),
    json_column("conditions"),
    json_column("desired", null=True),
    count_column("table_version"),
    count_column("revision"),
    count_column("slo_version"),
    time_column("created_at"),
    time_column("observed_at"),
    time_column("deleted_at", null=True),
    time_column("starts_noted_at", null=True),
    json_column("measured", null=True),
    json_column("stalled", null=True),
    text_column("departed", null=True),
    UniqueConstraint("namespace", "name"),
)
"""Pools. `measured` is the stored measurement of the pool's engines by routers (`pools.capabilities.Remembered`).
`stalled` names the instances whose engines had stalled when the pool's state was last reported, None = no instance.
`departed` describes how demand departs from the pool's forecast, None = it does not depart.
"""

pool_revisions = Table(
    "pool_revisions",
    metadata,
    pool_column(primary_key=True),
    Column("number", BigInteger, primary_key=True),
    text_column("uid"),
    count_column("generation", None),
    time_column("at"),
    text_column("actor"),
    text_column("reason", null=True),
    json_column("spec"),
    json_column("diff"),
    Column("resource_version", BigInteger, nullable=True),
    text_column("manager", null=True),
)
"""Revisions of pools' specs. `resource_version` is the Kubernetes object's resource version when the revision was first
seen, None if that version is not a number. `manager` is the field manager. `actor` is the user if known, otherwise the
field manager.
"""

pool_events = Table(
    "pool_events",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    pool_column(),
    time_column("at"),
    text_column("reason"),
    text_column("message"),
    text_column("instance", null=True),
    json_column("before", null=True),
    json_column("after", null=True),
    UniqueConstraint("pool_id", "at", "reason", "message"),
    Index(None, "at"),
)


instances = Table(
    "instances",
    metadata,
    pool_column(primary_key=True),
    Column("id", Text, primary_key=True),
    text_column("pod_uid"),
    text_column("address", null=True),
    text_column("role"),
    text_column("state"),
    text_column("reason"),
    text_column("node", null=True),
    Column("weight", Double, nullable=False),
    count_column("restarts"),
    count_column("anchors"),
    Column("key_share", Double, nullable=False, server_default="0"),
    count_column("table_version"),
    time_column("created_at"),
    time_column("state_since"),
    time_column("gone_at", null=True),
    Index(None, "pool_id", "created_at", postgresql_where=text("gone_at IS NULL")),
)

instance_transitions = Table(
    "instance_transitions",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    pool_column(),
    text_column("instance"),
    time_column("at"),
    text_column("before", null=True),
    text_column("after"),
    text_column("reason"),
    Index(None, "pool_id", "instance", "at"),
    Index(None, "at"),
    Index("ix_instance_transitions_pool_id_at", "pool_id", "at", postgresql_where=text("after = 'Lost' OR before = 'Lost'")),
)

routing_tables = Table(
    "routing_tables",
    metadata,
    pool_column(primary_key=True),
    Column("version", BigInteger, primary_key=True),
    text_column("uid"),
    count_column("generation", None),
    json_column("content"),
    Column("content_hash", LargeBinary, nullable=False),
    time_column("created_at", now=True),
)

routers = Table(
    "routers",
    metadata,
    Column("id", Text, primary_key=True),
    time_column("first_seen_at", now=True),
    time_column("last_seen_at"),
    time_column("sent_at"),
    time_column("gone_at", null=True),
    json_column("acknowledged"),
    json_column("in_flight"),
    Column("use", JSONB, nullable=False, server_default="{}"),
    Column("troubled_engines", JSONB, nullable=False, server_default="{}"),
    Column("known_caches", JSONB, nullable=False, server_default="{}"),
    Column("learnt_figures", JSONB, nullable=False, server_default="{}"),
    json_column("asked_at", null=True),
    Column("shares", JSONB, nullable=False, server_default="{}"),
)
"""Routers. `asked_at` is the address to which other routers can send queries, with a secret, so only routers may read
it. `shares` holds, by pool, the load reports that the router sends to other routers.
"""

router_acknowledgements = Table(
    "router_acknowledgements",
    metadata,
    Column("router", Text, ForeignKey("routers.id"), primary_key=True),
    pool_column(primary_key=True),
    Column("version", BigInteger, primary_key=True),
    time_column("at", now=True),
)

predictor_models = Table(
    "predictor_models",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    pool_column(),
    Column("version", Integer, nullable=False),
    text_column("model"),
    time_column("at"),
    json_column("figures"),
    Column("content", LargeBinary, nullable=True),
    UniqueConstraint("pool_id", "version"),
    UniqueConstraint("pool_id", "model"),
    Index(None, "at", "id"),
)
