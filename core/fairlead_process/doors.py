"""Divides the open files of a process among the ports at which it listens, and bounds the connections of each port.

Every connection is a file, and anybody who reaches a port may open any number of connections. So each port has a `Door`
with a limit of its own. When a door is full, it closes connections that have no request. If there are no such
connections, it refuses new connections. The other ports keep their files.
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

FILES_KEPT_BACK = 256
"""Number of open files reserved for everything but connections: logs, spool, control API, database, listening
sockets.
"""

SIDE_SHARE = 16
"""Divisor for each port except the main port: when few files are left, such a port gets at most 1/16 of them."""

STRANGER_SECONDS = 1.0
"""Seconds that a new connection may take to send a whole request before a full door may close it in favour of another
connection.
"""
IDLE_SECONDS = 10.0
"""Seconds that a connection may be idle between two requests before a full door may close it in favour of another
connection.
"""

MOST_LOOKED_AT = 16
"""Maximum number of connections that are examined to find a connection that may be closed in favour of a new one. The
limit keeps refusals cheap during a flood of connections.
"""

logger = logging.getLogger(__name__)


class Visitor(Protocol):
    """The calls that a door makes to a connection."""

    def may_go(self) -> bool:
        """Return whether the connection has been idle long enough to be closed in favour of another connection."""

    def turn_away(self) -> None:
        """Close the connection, with a response if its client waits for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorPlan:
    """The number of connections that a port should accept (`wanted`), and the number of files that each of them needs
    (`files`), including the files of connections that it causes.
    """

    name: str
    wanted: int
    files: int = 1


def shares(main: DoorPlan, sides: tuple[DoorPlan, ...], files: int) -> dict[str, int]:
    """Return the number of connections of each port of a process that may open `files`: as planned, or fewer if files
    are short.
    """
    left = files - FILES_KEPT_BACK
    taken: dict[str, int] = {}
    for side in sides:
        taken[side.name] = _fitting(side, max(0, files - FILES_KEPT_BACK) // SIDE_SHARE)
        left -= side.files * taken[side.name]
    return {main.name: _fitting(main, left), **taken}


def _fitting(plan: DoorPlan, files: int) -> int:
    return max(1, min(plan.wanted, files // plan.files))


def take_files(main: DoorPlan, *sides: DoorPlan) -> Mapping[str, int]:
    """Raise the process's limit of open files for these ports as far as allowed, and return `shares`."""
    needed = FILES_KEPT_BACK + sum(plan.files * plan.wanted for plan in (main, *sides))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    possible = shares(main, sides, needed if soft == resource.RLIM_INFINITY else max(soft, allowed))
    if possible[main.name] < main.wanted:
        extra = {"wanted": main.wanted, "possible": possible[main.name]}
        logger.warning("fewer connections than wanted: the limit of open files is too low", extra=extra)
    return possible


class Door:
    """The connections of one port, at most `most`."""

    __slots__ = ("_inside", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._inside: dict[Visitor, None] = {}

    @property
    def inside(self) -> int:
        """Number of open connections."""
        return len(self._inside)

    def enter(self, visitor: Visitor) -> bool:
        """Admit a connection to the door, if necessary after closing an idle connection. Return False if the caller
        must refuse the new connection.
        """
        if len(self._inside) >= self.most and not self._make_room():
            return False
        self._inside[visitor] = None
        return True

    def leave(self, visitor: Visitor) -> None:
        """Remove a closed connection from the door; does nothing for a connection that was not admitted."""
        self._inside.pop(visitor, None)

    def _make_room(self) -> bool:
        """Close an idle connection. Connections that were not examined for the longest time are examined first. Return
        whether a connection was closed.
        """
        for _ in range(min(MOST_LOOKED_AT, len(self._inside))):
            visitor = next(iter(self._inside))
            del self._inside[visitor]
            if visitor.may_go():
                visitor.turn_away()
                return True
            self._inside[visitor] = None
        return False
