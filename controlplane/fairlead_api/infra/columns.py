"""Definitions that all tables share: the metadata with its naming convention, and functions that create columns."""

from sqlalchemy import BigInteger, Column, DateTime, ForeignKey, Integer, MetaData, Text, func
from sqlalchemy.dialects.postgresql import JSONB

from fairlead.tables import DEFAULT_CLASS

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def time_column(name: str, *, null: bool = False, now: bool = False) -> "Column[object]":
    return Column(name, DateTime(timezone=True), nullable=null, server_default=func.now() if now else None)


def text_column(name: str, *, null: bool = False) -> "Column[object]":
    return Column(name, Text, nullable=null)


def json_column(name: str, *, null: bool = False) -> "Column[object]":
    return Column(name, JSONB(none_as_null=True), nullable=null)


def count_column(name: str, default: int | None = 0) -> "Column[object]":
    return Column(name, BigInteger, nullable=False, server_default=None if default is None else str(default))


def pool_column(*, primary_key: bool = False) -> "Column[object]":
    return Column("pool_id", Integer, ForeignKey("pools.id"), nullable=False, primary_key=primary_key)


def class_column() -> "Column[object]":
    """Return the column for a request's priority class. Rows that are older than the column have the default class."""
    return Column("priority_class", Text, nullable=False, server_default=DEFAULT_CLASS)
