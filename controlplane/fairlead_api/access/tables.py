"""Tables of people, their credentials, and gateway keys. Only the SHA-256 of each secret is stored."""

from sqlalchemy import BigInteger, Boolean, Column, DateTime, ForeignKey, Index, Integer, LargeBinary, Table, Text, false
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from fairlead_api.infra.columns import count_column, metadata, text_column, time_column


def rights_column() -> "Column[object]":
    """Return the column of roles by namespace. These roles add to the role for all namespaces."""
    return Column("namespaces", JSONB, nullable=False, server_default="{}")


users = Table(
    "users",
    metadata,
    Column("subject", Text, primary_key=True),
    text_column("role"),
    text_column("source"),
    time_column("created_at", now=True),
    time_column("last_login_at", null=True),
)

api_tokens = Table(
    "api_tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("token_hash", LargeBinary, nullable=False, unique=True),
    text_column("name"),
    text_column("role"),
    time_column("created_at"),
    text_column("created_by"),
    time_column("expires_at"),
    time_column("last_used_at", null=True),
    time_column("revoked_at", null=True),
    rights_column(),
)

login_links = Table(
    "login_links",
    metadata,
    Column("token_hash", LargeBinary, primary_key=True),
    text_column("subject"),
    text_column("role"),
    text_column("created_by"),
    time_column("created_at"),
    time_column("expires_at"),
    time_column("used_at", null=True),
    rights_column(),
)

web_sessions = Table(
    "web_sessions",
    metadata,
    Column("token_hash", LargeBinary, primary_key=True),
    text_column("subject"),
    text_column("role"),
    text_column("source"),
    time_column("created_at"),
    time_column("last_used_at"),
    time_column("expires_at"),
    time_column("revoked_at", null=True),
    rights_column(),
    text_column("address", null=True),
    Column("groups", JSONB, nullable=False, server_default="[]"),
    Column("opened_by", LargeBinary),
)

gateway_keys = Table(
    "gateway_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    text_column("prefix"),
    text_column("name"),
    Column("pools", ARRAY(Text), nullable=False),
    Column("models", ARRAY(Text), nullable=False),
    Column("requests_per_minute", BigInteger),
    Column("tokens_per_minute", BigInteger),
    time_column("created_at"),
    text_column("created_by"),
    time_column("expires_at", null=True),
    time_column("revoked_at", null=True),
    text_column("priority_class", null=True),
    Column("explain", Boolean, nullable=False, server_default=false()),
    Column("former_digest", LargeBinary),
    text_column("budget_day", null=True),
    text_column("budget_month", null=True),
    text_column("budget_currency", null=True),
    Column("budget_soft_percent", Integer),
    time_column("budget_soft_at", null=True),
    time_column("budget_ends_at", null=True),
    time_column("former_until", null=True),
    Index(None, "created_at", "id"),
)

gateway_key_use = Table(
    "gateway_key_use",
    metadata,
    Column("key_id", Text, ForeignKey("gateway_keys.id"), primary_key=True),
    Column("minute", DateTime(timezone=True), primary_key=True),
    Column("router", Text, primary_key=True),
    Column("refusal", Text, primary_key=True),
    count_column("requests"),
    count_column("prompt_tokens"),
    count_column("output_tokens"),
    Index(None, "minute"),
)
"""Usage of each gateway key by minute and router. `refusal` is empty in rows about requests that were sent to
a pool.
"""
