"""The folder in which routers of one machine find each other: a file for each, which only their user can read."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from fairlead_router.deciding.listed import Listed

_SUFFIX = ".json"
_decoder = msgspec.json.Decoder(Listed)


class Folder:
    """The files of all routers. One that was killed leaves its file, which says where nobody answers, or a stranger."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def enter(self, own: Listed) -> None:
        """Make this router known, again if its file was taken away. Raises OSError."""
        path = self._file(own.router)
        if self._read(path) == own:
            return
        self._path.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        temporary.touch(mode=0o600)
        temporary.write_bytes(msgspec.json.encode(own))
        temporary.replace(path)

    def leave(self, router: str) -> None:
        """Make it known no more."""
        with contextlib.suppress(OSError):
            self._file(router).unlink()

    def listed(self) -> dict[str, Listed]:
        """All routers by name; files of other users, and such as cannot be read or understood, are left out."""
        found: dict[str, Listed] = {}
        for path in sorted(self._path.glob(f"*{_SUFFIX}")):
            one = self._read(path)
            if one is not None:
                found[one.router] = one
        return found

    def _read(self, path: Path) -> Listed | None:
        with contextlib.suppress(OSError, msgspec.DecodeError), path.open("rb") as file:
            if os.fstat(file.fileno()).st_uid == os.geteuid():
                return _decoder.decode(file.read())
        return None

    def _file(self, router: str) -> Path:
        return self._path / f"{router.encode().hex()}{_SUFFIX}"
