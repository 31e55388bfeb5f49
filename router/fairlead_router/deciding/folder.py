"""The folder in which routers of one machine find each other: a file for each, which only their user can read."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

_SUFFIX = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A router and where it listens on the loopback. Who asks it shows its `secret`, and it shows its `proof`."""

    router: str
    port: int
    secret: str
    proof: str


_decoder = msgspec.json.Decoder(Listed)


class Folder:
    """The files of all routers. One that was killed leaves its file, which says where nobody answers, or a stranger."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def enter(self, listed: Listed) -> None:
        """Make this router known. Raises OSError."""
        self._path.mkdir(parents=True, exist_ok=True)
        path = self._file(listed.router)
        temporary = path.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        temporary.touch(mode=0o600)
        temporary.write_bytes(msgspec.json.encode(listed))
        temporary.replace(path)

    def leave(self, router: str) -> None:
        """Make it known no more."""
        with contextlib.suppress(OSError):
            self._file(router).unlink()

    def listed(self) -> dict[str, Listed]:
        """All routers by name; files of other users, and such as cannot be read or understood, are left out."""
        found: dict[str, Listed] = {}
        for path in sorted(self._path.glob(f"*{_SUFFIX}")):
            with contextlib.suppress(OSError, msgspec.DecodeError), path.open("rb") as file:
                if os.fstat(file.fileno()).st_uid == os.geteuid():
                    one = _decoder.decode(file.read())
                    found[one.router] = one
        return found

    def _file(self, router: str) -> Path:
        return self._path / f"{router.encode().hex()}{_SUFFIX}"
