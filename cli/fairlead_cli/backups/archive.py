"""The file of a backup: an uncompressed zip whose last member, the manifest, lists the other members with their
digests.
"""

import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import msgspec

from fairlead.errors import FairleadError, InvalidInput

FORMAT = 1
DATABASE, POOLS, ROLES, SECRETS = "database.dump", "pools.json", "roles.json", "secrets.json"
_MANIFEST = "manifest.json"
_CHUNK = 1 << 20


class Head(msgspec.Struct, frozen=True):
    """The newest entry of the audit log in the backup."""

    id: int
    chain: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a backup.

    `schema`: the newest migration.
    `postgres`: the server's version, such as 180006.
    `sha256`: a digest of each member.
    """

    format: int = FORMAT
    fairlead: str
    schema: str
    postgres: int
    made_at: datetime
    audit_head: Head | None
    sha256: dict[str, str]


class NotABackup(FairleadError):
    """The file is not a backup, was cut short, or cannot be read by this version."""


class Writer:
    """Writes a backup's members."""

    def __init__(self, kept: zipfile.ZipFile) -> None:
        self._kept = kept
        self.sha256: dict[str, str] = {}

    def add(self, name: str, content: Callable[[], bytes]) -> None:
        """Add a member. Each call of `content` returns its next bytes, and b"" at the end."""
        digest = hashlib.sha256()
        with self._kept.open(name, "w", force_zip64=True) as member:
            while part := content():
                digest.update(part)
                member.write(part)
        self.sha256[name] = digest.hexdigest()

    def document(self, name: str, document: object) -> None:
        """Add a JSON document."""
        parts = iter([msgspec.json.encode(document), b""])
        self.add(name, lambda: next(parts))

    def close(self, manifest: Manifest) -> None:
        """Write the manifest, which completes the backup."""
        self._kept.writestr(_MANIFEST, msgspec.json.encode(manifest))


@contextmanager
def written(path: Path) -> Iterator[Writer]:
    """Yield the writer of a new backup. Only the current user may read its file, which appears at `path` when the block
    has ended without an error.

    Raises InvalidInput if a file exists at the path.
    """
    if path.exists():
        raise InvalidInput("FILE", str(path), "name a file that does not exist yet: a backup replaces no file")
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            with zipfile.ZipFile(file, "w") as kept:
                yield Writer(kept)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


class Backup:
    """A complete backup."""

    def __init__(self, kept: zipfile.ZipFile, manifest: Manifest) -> None:
        self._kept = kept
        self.manifest = manifest

    def open(self, name: str) -> IO[bytes]:
        """Open a member for reading."""
        return self._kept.open(name)

    def document(self, name: str) -> list[dict[str, Any]]:
        """Return the objects in a member; empty if the backup has no such member, because it has only the database."""
        if name not in self.manifest.sha256:
            return []
        return msgspec.json.decode(self._kept.read(name), type=list[dict[str, Any]])


@contextmanager
def opened(path: Path) -> Iterator[Backup]:
    """Yield the backup at `path` after reading and checking the whole file. Raises NotABackup."""
    try:
        with zipfile.ZipFile(path) as kept:
            yield Backup(kept, _checked(kept, path))
    except (zipfile.BadZipFile, KeyError, msgspec.MsgspecError, EOFError) as error:
        raise NotABackup(f"{path} is not a complete backup: it was cut short, or another program made it; use another file") from error


def _checked(kept: zipfile.ZipFile, path: Path) -> Manifest:
    document = kept.read(_MANIFEST)
    found = msgspec.json.decode(document, type=dict[str, object]).get("format")
    if found != FORMAT:
        raise NotABackup(f"{path} has format {found}, and this version reads {FORMAT}: restore it with the Fairlead that made it")
    manifest = msgspec.json.decode(document, type=Manifest)
    for name, digest in manifest.sha256.items():
        with kept.open(name) as member:
            seen = hashlib.sha256()
            while part := member.read(_CHUNK):
                seen.update(part)
        if seen.hexdigest() != digest:
            raise NotABackup(f"{path}: the content of {name} has changed since the backup; use another backup")
    return manifest
