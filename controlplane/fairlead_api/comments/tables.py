"""The table of comments."""

from sqlalchemy import Column, Index, Table, Text

from fairlead_api.infra.columns import metadata, pool_column, text_column, time_column

comments = Table(
    "comments",
    metadata,
    Column("id", Text, primary_key=True),
    pool_column(),
    text_column("author"),
    text_column("text"),
    time_column("start"),
    time_column("end"),
    text_column("plan", null=True),
    time_column("created_at"),
    Index(None, "pool_id", "start"),
    Index(None, "start"),
    Index(None, "plan"),
)
"""Comments, kept until they are deleted. Their number is bounded per pool and author."""
