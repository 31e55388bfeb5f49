"""Migrates a database to the newest version, as `alembic upgrade head` does, but from any working directory.

A process that finds its database migrated never loads alembic, which takes longer than to connect.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from sqlalchemy.exc import DBAPIError

from fairlead.errors import FairleadError
from fairlead_api.infra.connections import connected

if TYPE_CHECKING:
    from alembic.config import Config

logger = logging.getLogger(__name__)

LOCK_SECONDS = 4.0
"""Maximum seconds for which a migration waits for a lock. Other statements that need the same lock may wait equally
long behind the migration.
"""

_PACKAGED = Path(__file__).resolve().parents[1] / "migrations"
_MIGRATION = re.compile(r"\d{8}_(\d{4}_\w+)\.py")
_CANDIDATES = (Path(__file__).resolve().parents[3] / "migrations", _PACKAGED, Path("/app/migrations"), Path.cwd() / "migrations")


class DatabaseTooOld(FairleadError):
    """The database's migration is older than the oldest migration that this version knows."""

    def __init__(self, revision: str, oldest: str) -> None:
        super().__init__(
            f"the database is at migration {revision}, and this version can only upgrade one that is at {oldest} or later: run "
            f"the version that added {oldest} on it once, or start with an empty database (for the sandbox, delete "
            "its state folder .fairlead)"
        )


def _folder() -> Path:
    for folder in _CANDIDATES:
        if (folder / "env.py").exists():
            return folder
    raise FileNotFoundError("the folder `migrations` was not found beside the project, in /app or in the current folder")


def _config() -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_folder()).replace("%", "%%"))
    return config


def revisions() -> tuple[str, ...]:
    """Return the ids of all migrations, the oldest first. An id is read from the name of the migration's file,
    `<date>_<id>.py`. Files with other names in the folder, such as an editor's copies, are ignored.
    """
    names = (_MIGRATION.fullmatch(file.name) for file in (_folder() / "versions").iterdir())
    found = tuple(sorted(name[1] for name in names if name is not None))
    if not found:
        raise FileNotFoundError("the folder `migrations` holds no migration")
    return found


def heads() -> str:
    """Return the id of the newest migration."""
    return revisions()[-1]


def older() -> frozenset[str]:
    """Return the ids of all migrations except the newest."""
    return frozenset(revisions()[:-1])


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
"""Remedies for the case that the database refuses a migration for a reason outside the migration. Each is found by the
error's SQLSTATE, or by the first two characters of the SQLSTATE.
"""


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

    A database that a newer version migrated is left unchanged. Processes of this version may use it during a rollout or
    after a roll-back, because the migrations of the next release remove nothing that these processes need.

    Raises DatabaseTooOld for a database from before the oldest migration of this version, MigrationRefused.
    """
    with refusals():
        _upgrade(url, revision, lock_seconds)


def _upgrade(url: str, revision: str, lock_seconds: float) -> None:
    present = _present(url)
    if _is_newer(present) or (revision == "head" and present == heads()):
        return
    from alembic import command
    from alembic.util.exc import CommandError

    config = _config()
    config.attributes.update(url=url, lock_seconds=lock_seconds)
    try:
        command.upgrade(config, revision)
    except CommandError:
        if not _is_newer(_present(url)):  # a newer version may have migrated it while this one waited
            raise


def _is_newer(present: str | None) -> bool:
    known = revisions()
    if present is None or present in known:
        return False
    if present < known[0]:  # they begin with their numbers
        raise DatabaseTooOld(present, known[0])
    logger.warning("a newer version migrated the database; nothing was changed", extra={"database": present, "known": known[-1]})
    return True


def _present(url: str) -> str | None:
    """Return the database's present migration, None for a database without tables."""
    with connected(url) as connection:
        if connection.execute("SELECT to_regclass('alembic_version')").fetchone() == (None,):
            return None
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return None if row is None else str(row[0])


def downgrade(url: str, revision: str) -> None:
    """Revert the migrations after `revision`, or all of them if it is `base`."""
    from alembic import command

    config = _config()
    config.attributes["url"] = url
    command.downgrade(config, revision)


def check(url: str) -> None:
    """Raises alembic's AutogenerateDiffsDetected if the database's schema differs from `tables`."""
    from alembic import command

    config = _config()
    config.attributes["url"] = url
    command.check(config)
