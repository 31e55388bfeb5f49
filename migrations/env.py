"""Runs migrations, each in a transaction of its own, one process at a time. A migration that waits too long for a lock
gives up, so that it does not block the tables of a running system.

The database's URL comes from the caller (`config.attributes["url"]`, as when the API migrates at its start), otherwise
from FAIRLEAD_DATABASE_URL.
"""

import os
import time
from functools import partial
from typing import Any

from alembic import context
from sqlalchemy import create_engine, pool, text

from fairlead_api.infra.connections import connected
from fairlead_api.infra.partitions import is_partition
from fairlead_api.infra.upgrading import LOCK_SECONDS
from fairlead_api.settings import DATABASE_SCHEME, DatabaseSettings
from fairlead_api.tables import RETIRED, metadata
from fairlead_process.environment import read
from fairlead_process.starting import one_line_errors

LOCK = 0x6661_6972
"""The key of the advisory lock (the letters `fair`) that lets only one process migrate at a time."""


def include_name(name: str | None, kind: str, parents: object) -> bool:
    """Return whether Alembic compares this object: not a daily partition, because these are made at run time, and not
    Alembic's own table.
    """
    return not (kind == "table" and name is not None and is_partition(name))


def include_object(found: Any, name: str | None, kind: str, reflected: bool, counterpart: Any) -> bool:
    """Return whether Alembic compares this object: not a column that only the previous release still uses."""
    return not (kind == "column" and reflected and counterpart is None and (found.table.name, name) in RETIRED)


def run_online() -> None:
    """Migrate a database. Only PostgreSQL is supported."""
    url = context.config.attributes.get("url")
    if not url:
        with one_line_errors("migrations"):
            url = read(DatabaseSettings, os.environ).url
    engine = create_engine(DATABASE_SCHEME, creator=partial(connected, url), poolclass=pool.NullPool)
    with engine.connect() as connection:
        while not connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": LOCK}).scalar_one():
            connection.rollback()  # waiting inside a statement would hold up a concurrent index build of whoever has the lock, for ever
            time.sleep(0.2)
        lock_seconds = context.config.attributes.get("lock_seconds", LOCK_SECONDS)
        connection.execute(text(f"SET lock_timeout = '{round(lock_seconds * 1000)}ms'"))
        connection.execute(text("SET statement_timeout = '60s'"))
        connection.commit()
        try:
            context.configure(
                connection=connection,
                target_metadata=metadata,
                include_name=include_name,
                include_object=include_object,
                transaction_per_migration=True,
                compare_server_default=True,
                compare_type=True,
            )
            with context.begin_transaction():
                context.run_migrations()
        finally:
            connection.rollback()
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": LOCK})
            connection.commit()
    engine.dispose()


run_online()
