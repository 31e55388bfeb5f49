"""Tables of people, their credentials, and the keys of the gateway's clients. Secrets are stored as SHA-256 only."""

from sqlalchemy import BigInteger, Column, Index, LargeBinary, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY

from fairlead_api.store.tables.columns import metadata, text_column, time_column

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
    Index(None, "created_at", "id"),
)
