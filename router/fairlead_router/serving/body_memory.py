"""The memory for bodies: for the bodies of requests, and of responses that clients do not read.

The memory is bounded, and so is the part that one owner (an API key, or a proxy's connection) may use. Each request
holds a share of it until the request ends. Above `soft` bytes, the router pauses reading bodies; at `most` bytes, it
refuses bodies.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

SHARE_OF_MEMORY = 0.25
"""The share of the process's memory that bodies get by default, if the rest is enough for everything else."""
SOFT_SHARE = 0.875
SHARE_OF_OWNER = 0.5

_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


BYTES_EACH = 1.5
"""Bytes of memory for each byte of a body, including overhead of the allocator and occasional copies."""
WORTH_GIVING_BACK = 32 * 1024 * 1024
"""Bytes of bodies that must have been released before memory is returned to the system, because returning it takes
time.
"""


class MemoryFull(Exception):
    """An exception: there is no memory left for this body, because all bodies together, or its owner's bodies, have
    reached their limit.
    """


class Owner(Protocol):
    """An API key, or a proxy's connection. The requests of one owner may together use only a part of the memory."""

    body_bytes: int


class BodyMemory:
    """The memory for bodies.

    `held`: number of bytes that are in use now. `most`: maximum number of bytes. `most_each`: maximum number of bytes
    of one owner, which is at least the size of the `largest` body.
    """

    __slots__ = ("_highest", "held", "most", "most_each", "soft")

    def __init__(self, most: int, largest: int = 0) -> None:
        self.most = most
        self.most_each = max(int(SHARE_OF_OWNER * most), min(largest, most))
        self.soft = int(SOFT_SHARE * most)
        self.held = 0
        self._highest = 0

    def look(self) -> None:
        """Record the highest number of held bytes. Called many times a second."""
        if self.held > self._highest:
            self._highest = self.held

    def has_fallen(self) -> bool:
        """Return whether memory should be returned to the system, because enough was released since the last time.
        Called every few seconds.
        """
        if self._highest - self.held < WORTH_GIVING_BACK:
            return False
        self._highest = self.held
        return True


class MemoryShare:
    """The memory for bodies that one request holds. If the request has an owner, it counts towards the owner's part
    too. It must be released in whatever way the request ends.
    """

    __slots__ = ("_memory", "_owner", "held")

    def __init__(self, memory: BodyMemory, owner: Owner | None = None) -> None:
        self._memory = memory
        self._owner = owner
        self.held = 0

    def another(self) -> MemoryShare:
        """Return a new, empty share with the same memory and owner."""
        return MemoryShare(self._memory, self._owner)

    def take(self, size: int) -> bool:
        """Reserve `size` further bytes. Return False, and reserve nothing, if there is not enough memory."""
        memory, owner = self._memory, self._owner
        if memory.held + size > memory.most:
            return False
        if owner is not None:
            if owner.body_bytes + size > memory.most_each:
                return False
            owner.body_bytes += size
        memory.held += size
        self.held += size
        return True

    def take_beside(self, size: int) -> bool:
        """Reserve `size` further bytes for an optional use. Return False if the remaining memory is kept for requests,
        which would be refused without it.
        """
        memory, owner = self._memory, self._owner
        if memory.held + size > memory.soft or (owner is not None and owner.body_bytes + size > SOFT_SHARE * memory.most_each):
            return False
        return self.take(size)

    def release(self, size: int | None = None) -> None:
        """Release `size` bytes; None = all bytes of this share."""
        size = self.held if size is None else min(size, self.held)
        self._memory.held -= size
        if self._owner is not None:
            self._owner.body_bytes -= size
        self.held -= size


def memory_for_bodies(largest: int, besides: int = 0, memory: int | None = None) -> int:
    """Return the bytes of memory for bodies if no setting limits them.

    This is a quarter of the process's `memory`, or less if the process needs much memory for other things (`besides`).
    It is always enough for two bodies of the size `largest`.
    """
    whole = memory_of_process() if memory is None else memory
    left = int((whole - besides) / BYTES_EACH)
    return max(min(int(SHARE_OF_MEMORY * whole), left), 2 * largest)


def memory_of_process() -> int:
    """Return the maximum number of bytes of memory of this process: the limit of its container or, without a limit, the
    memory of the machine.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(int(text) for path in _LIMITS if (text := _read(path)).isdecimal())])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
