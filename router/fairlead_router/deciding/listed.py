"""The directories in which routers find each other: a folder on one machine, or the control API.

In the folder each router writes a file that only its user can read. With the control API, each router's reports include
its address, and the API's receipt lists the other routers. While the API cannot be reached, the last receipt counts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from fairlead.reports.batches import AskAddress
from fairlead_router.deciding.frames import PROTOCOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An entry of a directory: a router, its address and its secret. The two routers of a connection prove to each
    other that they know the `secret` of the listed router. Each process makes a new secret, and never sends it over
    such a connection.
    """

    router: str
    host: str
    port: int
    secret: str = field(repr=False)
    protocol: int = 1

    @property
    def is_understood(self) -> bool:
        """Whether the listed router has the same protocol version as this router."""
        return self.protocol == PROTOCOL


class Directory(Protocol):
    """A directory in which routers publish their addresses. An entry may be out of date: its router may have stopped,
    and another process may have got the address.
    """

    def enter(self, own: Listed) -> None:
        """Publish this router's address; called again, it restores a lost entry. Raises OSError."""

    def leave(self, router: str) -> None:
        """Withdraw the router's address from the directory."""

    def listed(self) -> dict[str, Listed]:
        """Return the listed routers by name."""


_SUFFIX = ".json"
_decoder = msgspec.json.Decoder(Listed)


class Folder:
    """A directory that is a folder with one file for each router. A killed router leaves its file behind; the address
    in that file then belongs to no process, or to another process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def enter(self, own: Listed) -> None:
        """Write this router's file; called again, it restores a removed file. Raises OSError."""
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
        """Remove the router's file."""
        with contextlib.suppress(OSError):
            self._file(router).unlink()

    def listed(self) -> dict[str, Listed]:
        """Return the entries of all routers, by name. Skips files of other users and files that cannot be read or
        decoded.
        """
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


class ToldRouters:
    """The directory of routers at the control API. Each report to the API includes `own`, and the API's receipt has the
    list of routers.
    """

    def __init__(self) -> None:
        self.own: AskAddress | None = None
        """This router's address for other routers; None while other routers cannot connect to it."""
        self._listed: dict[str, Listed] = {}

    def enter(self, own: Listed) -> None:
        """Publish this router's address with the next report."""
        self.own = AskAddress(host=own.host, port=own.port, secret=own.secret, protocol=own.protocol)

    def leave(self, router: str) -> None:
        """Withdraw this router's address with the next report."""
        self.own = None

    def listed(self) -> dict[str, Listed]:
        """Return the live routers that other routers can connect to, by name, from the API's last receipt."""
        return dict(self._listed)

    def hear(self, told: Mapping[str, AskAddress]) -> None:
        """Keep the list of live routers from a receipt of the API."""
        self._listed = {
            router: Listed(router=router, host=one.host, port=one.port, secret=one.secret, protocol=one.protocol)
            for router, one in told.items()
        }
