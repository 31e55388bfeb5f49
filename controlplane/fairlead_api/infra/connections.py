"""Begins every connection to Postgres with the same settings, and detects databases that Fairlead cannot use.

A database, a role or a pooler may change the default settings of a session. The settings on which Fairlead's reading
and writing depend are therefore set by a statement, because poolers refuse most parameters at the start of a connection
(PgBouncer: all but `client_encoding`, `DateStyle`, `TimeZone`, `standard_conforming_strings` and `application_name`).
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import psycopg

from fairlead_api.settings import DATABASE_SCHEME

Connection = psycopg.AsyncConnection[Any]

PINNED = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "default_transaction_deferrable": "off",
}
"""Session settings that affect how values are written and read. Each is set to Postgres' default value."""

_SINCE_17 = {"transaction_timeout": "0"}
_SET = """
    SELECT set_config(key, value, false) FROM json_each_text(CAST(%s AS json)) UNION ALL
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""
"""SQL that sets session settings. It also sets `synchronous_commit`, because without it a crash of the server could
lose acknowledged data.
"""


def libpq_url(url: str) -> str:
    """Return the database's URL in the form that libpq reads."""
    return url.replace(DATABASE_SCHEME, "postgresql://", 1)


def _settings(version: int, more: Mapping[str, str]) -> tuple[str]:
    return (msgspec.json.encode({**PINNED, **(_SINCE_17 if version >= 170_000 else {}), **more}).decode(),)


async def begin_session(connection: Connection, settings: Mapping[str, str]) -> None:
    """Set PINNED and `settings` as session settings for the lifetime of the connection."""
    was_autocommit = connection.autocommit
    await connection.set_autocommit(True)  # a setting goes with the transaction that is rolled back
    await connection.execute(_SET, _settings(connection.info.server_version, settings), prepare=False)
    await connection.set_autocommit(was_autocommit)


def connected(url: str, **parameters: Any) -> psycopg.Connection[Any]:
    """Open a synchronous connection, with the same session settings as all other connections. Raises psycopg.Error."""
    connection = psycopg.connect(libpq_url(url), client_encoding="UTF8", autocommit=True, **parameters)
    try:
        connection.execute(_SET, _settings(connection.info.server_version, {}), prepare=False)
        connection.autocommit = False
    except BaseException:
        connection.close()
        raise
    return connection


async def why_unfit(connection: Connection, older: Collection[str]) -> str | None:
    """Return the reason why Fairlead cannot work with this database; None if it can. `older` has the ids of the
    migrations that are too old for this version; a database at any other migration is accepted. If `older` is empty,
    the schema is not checked.
    """
    found = await (await connection.execute(_PROPERTIES, prepare=False)).fetchone()
    encoding, table = found or ("", None)
    if (unfit := unfit_encoding(encoding)) is not None or not older:
        return unfit
    if table is None:
        return f"the database has no tables of Fairlead; {_MIGRATE}"
    row = await (await connection.execute("SELECT version_num FROM alembic_version", prepare=False)).fetchone()
    if row is None or row[0] in older:
        return f"the database is at migration {row[0] if row else 'none'}, which is too old for this version; {_MIGRATE}"
    return None


_PROPERTIES = "SELECT current_setting('server_encoding'), CAST(to_regclass('alembic_version') AS text)"
_MIGRATE = "run python -m fairlead_api.migrating"


def unfit_encoding(encoding: str) -> str | None:
    """Return the reason why a database with this encoding cannot be used; None if it can."""
    if encoding == "UTF8":
        return None
    return (
        f"the database has the encoding {encoding}, in which most names cannot be stored; make one by "
        "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
    )
