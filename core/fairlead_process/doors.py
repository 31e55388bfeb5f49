"""Shares the files of a process among the ports it listens at, and bounds the connections of each.

Every connection is a file, and whoever reaches a port may open as many as he likes. So each port has a `Door` with a
number of its own: when it is full, it turns away who has asked for nothing, and otherwise refuses, and the other ports
have their files left.
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

FILES_KEPT_BACK = 256
"""Open files reserved for everything but connections: logs, spool, control API, database, listening sockets."""

SIDE_SHARE = 16
"""When few file descriptors are left, a port other than the main one gets at most this fraction of them (1/N)."""

STRANGER_SECONDS = 1.0
"""After this long without a whole request a new connection gives its place to another, if the door is full."""
IDLE_SECONDS = 10.0
"""After this long between two requests a connection does the same."""

MOST_LOOKED_AT = 16
"""Connections looked at for one that may give its place; a flood must not make each refusal a search of all."""

logger = logging.getLogger(__name__)


class Visitor(Protocol):
    """A connection, as its door sees it."""

    def may_go(self) -> bool:
        """Whether it has been idle long enough for another connection to take its place."""

    def turn_away(self) -> None:
        """End it, with an answer where it waits for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorPlan:
    """How many connections a port should take, and the files that each needs, with those of connections behind it."""

    name: str
    wanted: int
    files: int = 1


def shares(main: DoorPlan, sides: tuple[DoorPlan, ...], files: int) -> dict[str, int]:
    """Connections for each port of a process that may open `files`: what is wanted, or fewer where files are short."""
    left = files - FILES_KEPT_BACK
    taken: dict[str, int] = {}
    for side in sides:
        taken[side.name] = _fitting(side, max(0, files - FILES_KEPT_BACK) // SIDE_SHARE)
        left -= side.files * taken[side.name]
    return {main.name: _fitting(main, left), **taken}


def _fitting(plan: DoorPlan, files: int) -> int:
    return max(1, min(plan.wanted, files // plan.files))


def take_files(main: DoorPlan, *sides: DoorPlan) -> Mapping[str, int]:
    """Raise the process's limit of open files as far as it may for these ports, and return `shares`."""
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
        """Connections that are open."""
        return len(self._inside)

    def enter(self, visitor: Visitor) -> bool:
        """Admit a connection, if need be in place of an idle one; False if the caller must refuse it."""
        if len(self._inside) >= self.most and not self._make_room():
            return False
        self._inside[visitor] = None
        return True

    def leave(self, visitor: Visitor) -> None:
        """The connection is gone; does nothing for one that was not let in."""
        self._inside.pop(visitor, None)

    def _make_room(self) -> bool:
        """Looks at those who were not looked at for the longest time."""
        for _ in range(min(MOST_LOOKED_AT, len(self._inside))):
            visitor = next(iter(self._inside))
            del self._inside[visitor]
            if visitor.may_go():
                visitor.turn_away()
                return True
            self._inside[visitor] = None
        return False
