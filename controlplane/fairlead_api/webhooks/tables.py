"""Tables of webhooks and of their notices. A webhook's secret is stored unhashed, because it is needed for signing."""

from sqlalchemy import Column, ForeignKey, Index, Table, Text, text
from sqlalchemy.dialects.postgresql import ARRAY

from fairlead_api.infra.columns import json_column, metadata, text_column, time_column

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Text, primary_key=True),
    text_column("name"),
    text_column("url"),
    text_column("secret"),
    text_column("form"),
    Column("kinds", ARRAY(Text), nullable=False),
    Column("pools", ARRAY(Text), nullable=False),
    time_column("created_at"),
    text_column("created_by"),
    Index(None, "created_at", "id"),
)

notices = Table(
    "notices",
    metadata,
    Column("id", Text, primary_key=True),
    Column("webhook", Text, ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    text_column("kind"),
    text_column("pool"),
    text_column("subject"),
    text_column("words"),
    json_column("facts"),
    time_column("at"),
    text_column("state"),
    time_column("due_at", null=True),
    json_column("attempts"),
    Index(None, "webhook", "at", "id"),
    Index(None, "at", "id"),
    Index("ix_notices_waiting", "webhook", "due_at", "id", postgresql_where=text("state = 'waiting'")),
)
"""Notices, already delivered or still to be delivered, with a row for each event and webhook. `attempts` has at most
`deliveries.MOST_ATTEMPTS` entries.
"""
