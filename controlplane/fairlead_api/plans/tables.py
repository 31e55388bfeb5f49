"""Tables of changes and their authors: plans and the audit log; and the ids of reports already taken."""

from sqlalchemy import BigInteger, Column, Date, Index, Table, Text, text

from fairlead_api.infra.columns import count_column, json_column, metadata, pool_column, text_column, time_column

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
    json_column("object"),
    json_column("change"),
    json_column("inverse"),
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
    json_column("seen", null=True),
    time_column("begun_at", null=True),
    json_column("begun", null=True),
    Index(None, "pool_id", "created_at"),
    Index(None, "created_at", "id"),
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

BY_THE_SYSTEM = (
    "role IN ('system-operator', 'system-router') OR left(action, 9) = 'operator.' "
    "OR (role = 'cluster' AND source ~ 'autoscaler|controller|operator')"
)
"""Of entries of the audit log: that no person acted, as `audit.kinds.kind_of` says."""

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
    Index("ix_audit_log_human", "at", "id", postgresql_where=text(f"NOT ({BY_THE_SYSTEM})")),
)

cluster_changes = Table(
    "cluster_changes",
    metadata,
    Column("audit_id", Text, primary_key=True),
    time_column("at"),
    text_column("uid"),
    count_column("version", None),
    Column("generation", BigInteger, nullable=True),
    text_column("actor"),
    text_column("acted_as", null=True),
    json_column("groups"),
    text_column("agent"),
    Index(None, "uid", "version"),
    Index(None, "at"),
)
"""Writes to pools by the Kubernetes API's audit log (`audit.cluster_events.ClusterChange`)."""

audit_heads = Table(
    "audit_heads",
    metadata,
    Column("day", Date, primary_key=True),
    Column("last_id", BigInteger, nullable=False, unique=True),
    text_column("chain"),
    time_column("at"),
)
"""The last entry of each day, written together with it: it shows if entries are missing from the end of the log."""
