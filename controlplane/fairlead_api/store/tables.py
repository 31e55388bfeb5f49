"""Every table of the database, as SQLAlchemy Core metadata; the migrations are generated from it and checked against it.

`pools` has one row per namespace/name for ever (also after deletion), so that versions of routing tables never fall back. Times are UTC.
Large tables (`load_samples`, `decisions`, `rejections`) are partitioned by UTC day; `store.partitions` makes and drops the days.
"""

from sqlalchemy import (
    REAL,
    BigInteger,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from fairlead_client.resources import METRICS

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

PARTITIONED = {"load_samples": "second", "decisions": "at", "rejections": "second"}
"""Tables partitioned by UTC day, with the column that decides the day."""


def _time(name: str, *, null: bool = False, now: bool = False) -> "Column[object]":
    return Column(name, DateTime(timezone=True), nullable=null, server_default=func.now() if now else None)


def _text(name: str, *, null: bool = False) -> "Column[object]":
    return Column(name, Text, nullable=null)


def _json(name: str, *, null: bool = False) -> "Column[object]":
    return Column(name, JSONB(none_as_null=True), nullable=null)


def _count(name: str, default: int | None = 0) -> "Column[object]":
    return Column(name, BigInteger, nullable=False, server_default=None if default is None else str(default))


def _pool(*, primary_key: bool = False) -> "Column[object]":
    return Column("pool_id", Integer, ForeignKey("pools.id"), nullable=False, primary_key=primary_key)


pools = Table(
    "pools",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    _text("namespace"),
    _text("name"),
    _text("uid"),
    _count("generation", None),
    _text("resource_version"),
    _text("model"),
    _json("spec"),
    _json("facts", null=True),
    _json("labels"),
    _json("annotations"),
    _text("changed_by"),
    _text("problem", null=True),
    _json("conditions"),
    _count("table_version"),
    _count("revision"),
    _count("slo_version"),
    _time("created_at"),
    _time("observed_at"),
    _time("deleted_at", null=True),
    UniqueConstraint("namespace", "name"),
)

pool_revisions = Table(
    "pool_revisions",
    metadata,
    _pool(primary_key=True),
    Column("number", BigInteger, primary_key=True),
    _text("uid"),
    _count("generation", None),
    _time("at"),
    _text("actor"),
    _text("reason", null=True),
    _json("spec"),
    _json("diff"),
)

pool_events = Table(
    "pool_events",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    _pool(),
    _time("at"),
    _text("reason"),
    _text("message"),
    _text("instance", null=True),
    _json("before", null=True),
    _json("after", null=True),
    UniqueConstraint("pool_id", "at", "reason", "message"),
)

slo_configs = Table(
    "slo_configs",
    metadata,
    _pool(primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("ttft_seconds", Double, nullable=False),
    Column("tpot_seconds", Double, nullable=False),
    Column("percentile", Double, nullable=False),
    _time("active_from"),
    _time("active_until", null=True),
)

instances = Table(
    "instances",
    metadata,
    _pool(primary_key=True),
    Column("id", Text, primary_key=True),
    _text("pod_uid"),
    _text("address", null=True),
    _text("role"),
    _text("state"),
    _text("reason"),
    _text("node", null=True),
    Column("weight", Double, nullable=False),
    _count("restarts"),
    _count("anchors"),
    Column("key_share", Double, nullable=False, server_default="0"),
    _count("table_version"),
    _time("created_at"),
    _time("state_since"),
    _time("gone_at", null=True),
    Index(None, "pool_id", "created_at", postgresql_where=text("gone_at IS NULL")),
)

instance_transitions = Table(
    "instance_transitions",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    _pool(),
    _text("instance"),
    _time("at"),
    _text("before", null=True),
    _text("after"),
    _text("reason"),
    Index(None, "pool_id", "instance", "at"),
)

routing_tables = Table(
    "routing_tables",
    metadata,
    _pool(primary_key=True),
    Column("version", BigInteger, primary_key=True),
    _text("uid"),
    _count("generation", None),
    _json("content"),
    Column("content_hash", LargeBinary, nullable=False),
    _time("created_at", now=True),
)

routers = Table(
    "routers",
    metadata,
    Column("id", Text, primary_key=True),
    _time("first_seen_at", now=True),
    _time("last_seen_at"),
    _time("sent_at"),
    _time("gone_at", null=True),
    _json("acknowledged"),
    _json("in_flight"),
)

router_acknowledgements = Table(
    "router_acknowledgements",
    metadata,
    Column("router", Text, ForeignKey("routers.id"), primary_key=True),
    _pool(primary_key=True),
    Column("version", BigInteger, primary_key=True),
    _time("at", now=True),
)

sessions = Table(
    "sessions",
    metadata,
    _pool(primary_key=True),
    Column("session", Text, primary_key=True),
    _text("instance", null=True),
    _count("version", None),
    _text("reason"),
    _text("router"),
    _time("bound_at"),
    _time("migrated_at", null=True),
    _time("last_seen_at"),
    _count("migrations"),
    _count("context_tokens"),
    Index(None, "pool_id", "instance"),
    Index(None, "last_seen_at"),
)

bindings = Table(
    "bindings",
    metadata,
    _pool(primary_key=True),
    Column("session", Text, primary_key=True),
    Column("version", BigInteger, primary_key=True),
    _text("instance"),
    _text("reason"),
    _text("router"),
    _time("bound_at"),
    _time("released_at", null=True),
    _text("migration", null=True),
)

migrations = Table(
    "migrations",
    metadata,
    Column("id", Text, primary_key=True),
    _pool(),
    _text("kind"),
    _text("session", null=True),
    _text("request", null=True),
    _text("source"),
    _text("target"),
    _text("trigger"),
    _time("at"),
    _time("recorded_at", now=True),
    _text("router"),
    Column("predicted_source_ttft_seconds", Double, nullable=False),
    Column("predicted_target_ttft_seconds", Double, nullable=False),
    Column("benefit_seconds", Double, nullable=False),
    Column("actual_ttft_seconds", Double),
    _count("tokens_moved"),
    _count("tokens_recomputed"),
    _text("outcome"),
    Index(None, "at", "id"),
    Index(None, "pool_id", "at"),
    Index(None, "pool_id", "session", "at"),
    Index(None, "recorded_at"),
)

decisions = Table(
    "decisions",
    metadata,
    _text("id"),
    _pool(),
    _text("request"),
    _text("session", null=True),
    _time("at"),
    _time("recorded_at", now=True),
    _text("router"),
    _text("policy"),
    _count("table_version"),
    _text("chosen"),
    _text("runner_up", null=True),
    _text("reason"),
    _count("prompt_tokens"),
    Column("queued_seconds", Double),
    Column("ttft_seconds", Double),
    Column("sample_rate", Double, nullable=False),
    _json("candidates"),
    PrimaryKeyConstraint("id", "at"),
    Index(None, "at", "id"),
    Index(None, "pool_id", "at"),
    Index(None, "recorded_at"),
    postgresql_partition_by="RANGE (at)",
)

rejections = Table(
    "rejections",
    metadata,
    _pool(),
    _text("router"),
    _time("second"),
    _text("reason"),
    _count("count"),
    Column("status", Integer, nullable=False),
    _text("sample_request"),
    _count("sample_prompt_tokens"),
    Column("retry_after_seconds", Double, nullable=False),
    Column("predicted_ttft_seconds", Double),
    Index(None, "pool_id", "second"),
    postgresql_partition_by="RANGE (second)",
)

load_samples = Table(
    "load_samples",
    metadata,
    _pool(),
    _text("router"),
    _text("instance"),
    _time("second"),
    _time("sent_at"),
    _count("running"),
    _count("waiting"),
    _count("pending_prefill_tokens"),
    _count("in_flight"),
    Column("kv_usage", REAL),
    _count("requests"),
    _count("completed"),
    _count("failed"),
    _count("cancelled"),
    _count("prompt_tokens"),
    _count("hit_tokens"),
    _count("output_tokens"),
    Column("ttft_seconds", ARRAY(REAL), nullable=False),
    Column("tpot_seconds", ARRAY(REAL), nullable=False),
    _count("ttft_within_slo"),
    _count("ttft_total"),
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
)
"""Counts a rollup sums, beside the maximum, sum and number of every heatmap metric's seconds."""


def _rollup(name: str) -> Table:
    """One instance in one bucket: per metric the maximum, sum and number of its per-second values, so that longer buckets merge exactly."""
    parts: list[Column[object]] = []
    for metric in METRICS:
        parts += [Column(f"{metric}_max", REAL), Column(f"{metric}_sum", Double), Column(f"{metric}_n", Integer, nullable=False)]
    return Table(
        name,
        metadata,
        _pool(primary_key=True),
        Column("bucket", DateTime(timezone=True), primary_key=True),
        Column("instance", Text, primary_key=True),
        *parts,
        *(_count(total) for total in SUMS),
    )


load_rollups_10s = _rollup("load_rollups_10s")
load_rollups_1m = _rollup("load_rollups_1m")

rollup_queue = Table(
    "rollup_queue",
    metadata,
    _pool(primary_key=True),
    Column("bucket", DateTime(timezone=True), primary_key=True),
    Column("router", Text, primary_key=True),
)

plans = Table(
    "plans",
    metadata,
    Column("id", Text, primary_key=True),
    _pool(),
    _text("kind"),
    _time("created_at"),
    _text("created_by"),
    _time("expires_at"),
    _text("state"),
    _text("uid"),
    _count("generation", None),
    _count("replicas_before", None),
    _count("replicas_after", None),
    _json("diff"),
    _json("effect"),
    _text("owner", null=True),
    _text("patch"),
    _text("reason", null=True),
    _time("applied_at", null=True),
    _text("applied_by", null=True),
    _count("applied_generation"),
    _time("undo_until", null=True),
    _text("undo_of", null=True),
    Index(None, "pool_id", "created_at"),
)

reports = Table(
    "reports",
    metadata,
    Column("id", Text, primary_key=True),
    _text("router"),
    _time("received_at", now=True),
    _json("receipt"),
    Index(None, "received_at"),
)

users = Table(
    "users",
    metadata,
    Column("subject", Text, primary_key=True),
    _text("role"),
    _text("source"),
    _time("created_at", now=True),
    _time("last_login_at", null=True),
)

api_tokens = Table(
    "api_tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("token_hash", LargeBinary, nullable=False, unique=True),
    _text("name"),
    _text("role"),
    _time("created_at"),
    _text("created_by"),
    _time("expires_at"),
    _time("last_used_at", null=True),
    _time("revoked_at", null=True),
)

login_links = Table(
    "login_links",
    metadata,
    Column("token_hash", LargeBinary, primary_key=True),
    _text("subject"),
    _text("role"),
    _text("created_by"),
    _time("created_at"),
    _time("expires_at"),
    _time("used_at", null=True),
)

web_sessions = Table(
    "web_sessions",
    metadata,
    Column("token_hash", LargeBinary, primary_key=True),
    _text("subject"),
    _text("role"),
    _text("source"),
    _time("created_at"),
    _time("last_used_at"),
    _time("expires_at"),
    _time("revoked_at", null=True),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    _time("at"),
    Column("day", Date, nullable=False),
    _text("actor"),
    _text("role"),
    _text("source"),
    _text("action"),
    _text("object"),
    _text("reason", null=True),
    _json("before", null=True),
    _json("after", null=True),
    _text("result"),
    _text("request_id", null=True),
    _text("plan", null=True),
    _text("chain"),
    Index(None, "at"),
    Index(None, "object"),
)
