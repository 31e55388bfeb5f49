"""Migrates a database to the newest version, as `alembic upgrade head` does, but from any working directory."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy.exc import DBAPIError

from fairlead.errors import FairleadError
from fairlead_api.infra.connections import connected

logger = logging.getLogger(__name__)

LOCK_SECONDS = 4.0
"""Maximum seconds for which a migration waits for a lock. Statements that queue for the lock behind it wait equally
long.
"""

_PACKAGED = Path(__file__).resolve().parents[1] / "migrations"
_CANDIDATES = (Path(__file__).resolve().parents[3] / "migrations", _PACKAGED, Path("/app/migrations"), Path.cwd() / "migrations")


class DatabaseTooOld(FairleadError):
    """The database's migration is older than the oldest migration that this version knows."""

    def __init__(self, revision: str, oldest: str) -> None:
        super().__init__(
            f"the database is at migration {revision}, and this version can only upgrade one that is at {oldest} or later: start "
            f"the version that added {oldest} on it once, or start with an empty database (for the sandbox, delete "
            "its state folder .fairlead)"
        )


def _config() -> Config:
    for folder in _CANDIDATES:
        if (folder / "env.py").exists():
            config = Config()
            config.set_main_option("script_location", str(folder).replace("%", "%%"))
            return config
    raise FileNotFoundError("the folder `migrations` was not found beside the project, in /app or in the current folder")


@cache  # the migrations of a process do not change, and each reading compiles them all
def heads() -> str:
    """Return the id of the newest migration."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    if head is None:
        raise FileNotFoundError("the folder `migrations` holds no migration")
    return head


@cache
def older() -> frozenset[str]:
    """Return the ids of all migrations except the newest."""
    scripts = ScriptDirectory.from_config(_config())
    return frozenset(script.revision for script in scripts.walk_revisions()) - set(scripts.get_heads())


class MigrationRefused(FairleadError):
    """The database refuses a migration. No changes of that migration remain."""

    def __init__(self, error: psycopg.Error) -> None:
        said = error.diag.message_primary or " ".join(str(error).split()) or type(error).__name__
        super().__init__(f"FAIRLEAD_DATABASE_URL: the database refuses the migration ({said}); {_remedy(error)}")


_REMEDIES: tuple[tuple[str, str], ...] = (
    ("42501", "let its owner run GRANT CREATE ON SCHEMA public TO the role of this URL, or make the role the owner of the database"),
    ("25006", "give the URL of a server that takes writes; managed servers take none while their disk is full"),
    ("55P03", "another transaction holds a lock on its tables: start again, or end that transaction"),
    ("0A000", "use a server that allows what Fairlead needs (PostgreSQL 14 or later), or let its administrator allow it"),
    ("53", "give the server more disk, memory or connections, whichever it lacks, then start again"),
    ("57", "the connection was ended by somebody or by a time limit: start again"),
    ("58", "the server's disk or files do not work: see its log"),
    ("22", "use a database with the encoding UTF8"),
    ("3F", "make the schema that the role's search_path names"),
    ("08", "the connection was lost: start again"),
)
"""Remedies for refusals by the database that are not a fault of the migration, by SQLSTATE or class of SQLSTATEs."""


def _remedy(error: psycopg.Error) -> str:
    state = error.sqlstate or ("08" if isinstance(error, psycopg.OperationalError) else "")
    return next((remedy for begins, remedy in _REMEDIES if state.startswith(begins)), "")


@contextmanager
def refusals() -> Iterator[None]:
    """Run the block, and raise MigrationRefused if the database refuses it for a reason with a known remedy. Other
    errors pass unchanged.
    """
    try:
        yield
    except (psycopg.Error, DBAPIError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        if not isinstance(cause, psycopg.Error) or not _remedy(cause):
            raise
        raise MigrationRefused(cause) from error


def upgrade(url: str, revision: str = "head", *, lock_seconds: float = LOCK_SECONDS) -> None:
    """Migrate the database at `url`. If another process is migrating it, waits for that process.

    A migration that does not get a lock within `lock_seconds` fails and changes nothing.

    A database that a newer version migrated is left unchanged. During a rollout or after a roll-back, processes of this
    version use such a database too, and the next release's migrations remove nothing that they need.

    Raises DatabaseTooOld for a database from before the oldest migration of this version, MigrationRefused.
    """
    with refusals():
        _upgrade(url, revision, lock_seconds)


def _upgrade(url: str, revision: str, lock_seconds: float) -> None:
    if _is_newer(url):
        return
    config = _config()
    config.attributes.update(url=url, lock_seconds=lock_seconds)
    try:
        command.upgrade(config, revision)
    except CommandError:
        if not _is_newer(url):  # a newer version may have migrated it while this one waited
            raise


def _is_newer(url: str) -> bool:
    unknown = _unknown(url)
    if unknown is None:
        return False
    oldest = ScriptDirectory.from_config(_config()).get_base()
    if oldest is not None and unknown < oldest:  # they begin with their numbers
        raise DatabaseTooOld(unknown, oldest)
    logger.warning("a newer version migrated the database; nothing was changed", extra={"database": unknown, "known": heads()})
    return True


def _unknown(url: str) -> str | None:
    """Return the database's present migration if this version does not know it; otherwise None."""
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    with connected(url) as connection:
        if connection.execute("SELECT to_regclass('alembic_version')").fetchone() == (None,):
            return None
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row is not None and row[0] not in known else None


def downgrade(url: str, revision: str) -> None:
    """Revert the migrations after `revision`, or all of them if it is `base`."""
    config = _config()
    config.attributes["url"] = url
    command.downgrade(config, revision)


def check(url: str) -> None:
    """Raises alembic's AutogenerateDiffsDetected if the database's schema differs from `tables`."""
    config = _config()
    config.attributes["url"] = url
    command.check(config)
