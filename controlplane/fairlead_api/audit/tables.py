"""Tables of the audit log, of its heads, of its saved views, and of changes seen in the Kubernetes API's audit log."""

from sqlalchemy import BigInteger, Boolean, Column, Date, Index, Table, Text, text

from fairlead_api.infra.columns import count_column, json_column, metadata, text_column, time_column

BY_THE_SYSTEM = (
    "role IN ('system-operator', 'system-router') OR left(action, 9) = 'operator.' "
    "OR (role = 'cluster' AND source ~ 'autoscaler|controller|operator')"
)
"""The SQL condition for audit entries whose actor is not a person. `audit.cluster_events.kind_of` implements the same
rule in Python.
"""


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
"""Writes to pools that the Kubernetes API's audit log reported (`audit.cluster_events.ClusterChange`)."""


audit_heads = Table(
    "audit_heads",
    metadata,
    Column("day", Date, primary_key=True),
    Column("last_id", BigInteger, nullable=False, unique=True),
    text_column("chain"),
    time_column("at"),
)
"""The last entry of each day, written together with that entry. If entries are removed from the end of the log, the
head shows the loss.
"""


audit_views = Table(
    "audit_views",
    metadata,
    Column("id", Text, primary_key=True),
    text_column("name"),
    text_column("owner"),
    Column("shared", Boolean, nullable=False),
    *(text_column(name, null=True) for name in ("pool", "kind", "actor", "action", "object", "start", "end")),
    time_column("created_at"),
    Index(None, "owner", "name", unique=True),
    Index("ix_audit_views_shared", "name", postgresql_where=text("shared")),
)
"""Saved views of the audit log: the filters of `GET /v1/audit`, as text in the form of its query parameters."""
