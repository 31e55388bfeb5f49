"""The table with the ids of reports that were stored."""

from sqlalchemy import Column, Index, Table, Text

from fairlead_api.infra.columns import json_column, metadata, time_column

reports = Table(
    "reports",
    metadata,
    Column("router", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    time_column("received_at", now=True),
    json_column("receipt"),
    Index(None, "received_at"),
)
