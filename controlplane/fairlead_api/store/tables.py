"""Every table of the database, as SQLAlchemy Core metadata; the migrations are generated from it and checked against it.

`pools` has one row per namespace/name for ever (also after deletion), so that versions of routing tables never fall back. Times are UTC.
Large tables (`load_samples`, `decisions`, `rejections`) are partitioned by UTC day; `store.partitions` makes and drops the days.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from fairlead_api.store.identity_tables import api_tokens as api_tokens
from fairlead_api.store.identity_tables import login_links as login_links
from fairlead_api.store.identity_tables import users as users
from fairlead_api.store.identity_tables import web_sessions as web_sessions
from fairlead_api.store.move_tables import migrations as migrations
from fairlead_api.store.move_tables import reroutes as reroutes
from fairlead_api.store.schema import count_column, json_column, pool_column, text_column, time_column
from fairlead_api.store.schema import metadata as metadata
from fairlead_api.store.traffic_tables import PARTITIONED as PARTITIONED
from fairlead_api.store.traffic_tables import SUMS as SUMS
from fairlead_api.store.traffic_tables import decisions as decisions
from fairlead_api.store.traffic_tables import load_rollups_1m as load_rollups_1m
from fairlead_api.store.traffic_tables import load_rollups_10s as load_rollups_10s
from fairlead_api.store.traffic_tables import load_samples as load_samples
from fairlead_api.store.traffic_tables import rejections as rejections
from fairlead_api.store.traffic_tables import rollup_queue as rollup_queue

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
    json_column("facts", null=True),
    json_column("labels"),
    json_column("annotations"),
    text_column("changed_by"),
    text_column("problem", null=True),
    json_column("conditions"),
    count_column("table_version"),
    count_column("revision"),
    count_column("slo_version"),
    time_column("created_at"),
    time_column("observed_at"),
    time_column("deleted_at", null=True),
    UniqueConstraint("namespace", "name"),
)

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
)

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
)

router_acknowledgements = Table(
    "router_acknowledgements",
    metadata,
    Column("router", Text, ForeignKey("routers.id"), primary_key=True),
    pool_column(primary_key=True),
    Column("version", BigInteger, primary_key=True),
    time_column("at", now=True),
)

sessions = Table(
    "sessions",
    metadata,
    pool_column(primary_key=True),
    Column("session", Text, primary_key=True),
    text_column("instance", null=True),
    count_column("version", None),
    text_column("reason"),
    text_column("router"),
    time_column("bound_at"),
    time_column("migrated_at", null=True),
    time_column("last_seen_at"),
    count_column("migrations"),
    count_column("context_tokens"),
    text_column("change", null=True),
    Index(None, "pool_id", "instance"),
    Index(None, "last_seen_at"),
    Index(None, "instance", "last_seen_at"),
    Index(None, "pool_id", "last_seen_at"),
)

session_names = Table(
    "session_names",
    metadata,
    Column("pool_id", Integer, primary_key=True),
    Column("session", Text, primary_key=True),
    ForeignKeyConstraint(["pool_id", "session"], ["sessions.pool_id", "sessions.session"], ondelete="CASCADE"),
    Index(None, "session", postgresql_using="gin", postgresql_ops={"session": "gin_trgm_ops"}),
)
"""Every session's name once, for finding it by a part. A trigger on `sessions` fills it: sessions' own rows change with every request,
and an index of parts of names there would cost each change thirty entries."""

bindings = Table(
    "bindings",
    metadata,
    pool_column(primary_key=True),
    Column("session", Text, primary_key=True),
    Column("version", BigInteger, primary_key=True),
    text_column("instance"),
    text_column("reason"),
    text_column("router"),
    time_column("bound_at"),
    time_column("released_at", null=True),
    text_column("migration", null=True),
    CheckConstraint("released_at >= bound_at", "ends_after_it_began"),
    Index(None, "released_at"),
)

lost_moves = Table(
    "lost_moves",
    metadata,
    pool_column(primary_key=True),
    Column("router", Text, primary_key=True),
    Column("minute", DateTime(timezone=True), primary_key=True),
    count_column("moves"),
)
"""Moves of sessions that routers made and that did not count, because another writer was first."""

plans = Table(
    "plans",
    metadata,
    Column("id", Text, primary_key=True),
    pool_column(),
    text_column("kind"),
    time_column("created_at"),
    text_column("created_by"),
    time_column("expires_at"),
    text_column("state"),
    text_column("uid"),
    count_column("generation", None),
    count_column("replicas_before", None),
    count_column("replicas_after", None),
    json_column("diff"),
    json_column("effect"),
    text_column("owner", null=True),
    text_column("patch"),
    text_column("reason", null=True),
    time_column("applied_at", null=True),
    text_column("applied_by", null=True),
    count_column("applied_generation"),
    time_column("undo_until", null=True),
    text_column("undo_of", null=True),
    Index(None, "pool_id", "created_at"),
)

reports = Table(
    "reports",
    metadata,
    Column("router", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    time_column("received_at", now=True),
    json_column("receipt"),
    Index(None, "received_at"),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    time_column("at"),
    Column("day", Date, nullable=False),
    text_column("actor"),
    text_column("role"),
    text_column("source"),
    text_column("action"),
    text_column("object"),
    text_column("reason", null=True),
    json_column("before", null=True),
    json_column("after", null=True),
    text_column("result"),
    text_column("request_id", null=True),
    text_column("plan", null=True),
    text_column("chain"),
    Index(None, "at", "id"),
    Index(None, "object", "at"),
    Index(None, "actor", "at"),
    Index(None, "action", "at"),
)

audit_heads = Table(
    "audit_heads",
    metadata,
    Column("day", Date, primary_key=True),
    Column("last_id", BigInteger, nullable=False, unique=True),
    text_column("chain"),
    time_column("at"),
)
"""The last entry of each day, written with it: what is missing from the end of the log shows here."""
