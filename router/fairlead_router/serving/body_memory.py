"""The memory for bodies: of requests, and of responses that their clients do not read.

The memory is bounded, and so is the part of each owner (an API key, or a proxy's connection). Each request holds a
share of it until it ends. Above `soft` bytes, reading of bodies pauses; at `most` bytes, bodies are refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

SHARE_OF_MEMORY = 0.25
"""The share of the process's memory that bodies get, if the remainder is enough for everything else."""
SOFT_SHARE = 0.875
SHARE_OF_OWNER = 0.5

_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


BYTES_EACH = 1.5
"""Bytes of memory for each byte of a body, including the allocator's overhead and occasional copies."""
WORTH_GIVING_BACK = 32 * 1024 * 1024
"""Bytes of bodies that must have been released before memory is returned to the system, which takes some time."""


class MemoryFull(Exception):
    """The bodies of all requests together have reached their memory limit."""


class Owner(Protocol):
    """An API key, or a proxy's connection. All requests of one owner share a part of the memory."""

    body_bytes: int


class BodyMemory:
    """The memory for bodies.

    `held`: bytes that are held now.
    `most`: maximum number of bytes.
    `most_each`: maximum number of bytes of one owner; at least the `largest` body.
    """

    __slots__ = ("_highest", "held", "most", "most_each", "soft")

    def __init__(self, most: int, largest: int = 0) -> None:
        self.most = most
        self.most_each = max(int(SHARE_OF_OWNER * most), min(largest, most))
        self.soft = int(SOFT_SHARE * most)
        self.held = 0
        self._highest = 0

    def look(self) -> None:
        """Record the number of held bytes; called many times a second."""
        if self.held > self._highest:
            self._highest = self.held

    def has_fallen(self) -> bool:
        """Return whether enough memory was released since the last time that it should be returned to the system;
        called now and then.
        """
        if self._highest - self.held < WORTH_GIVING_BACK:
            return False
        self._highest = self.held
        return True


class MemoryShare:
    """The part of the memory for bodies that one request holds; it counts towards its owner's part too, if it has an
    owner. It must be released however the request ends.
    """

    __slots__ = ("_memory", "_owner", "held")

    def __init__(self, memory: BodyMemory, owner: Owner | None = None) -> None:
        self._memory = memory
        self._owner = owner
        self.held = 0

    def another(self) -> MemoryShare:
        """Return a new share, of the same memory and owner."""
        return MemoryShare(self._memory, self._owner)

    def take(self, size: int) -> bool:
        """Reserve `size` bytes more; return False if there is not enough memory."""
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
        """Reserve `size` further bytes for an optional use; return False if the remaining memory is kept for requests,
        which would be refused without memory.
        """
        memory, owner = self._memory, self._owner
        if memory.held + size > memory.soft or (owner is not None and owner.body_bytes + size > SOFT_SHARE * memory.most_each):
            return False
        return self.take(size)

    def release(self, size: int | None = None) -> None:
        """Release `size` bytes; None = all bytes."""
        size = self.held if size is None else min(size, self.held)
        self._memory.held -= size
        if self._owner is not None:
            self._owner.body_bytes -= size
        self.held -= size


def memory_for_bodies(largest: int, besides: int = 0, memory: int | None = None) -> int:
    """Return the bytes of memory for bodies, if no setting gives them: a quarter of the process's `memory`, or less if
    the process needs much memory `besides`; but enough for two bodies of the size `largest`.
    """
    whole = memory_of_process() if memory is None else memory
    left = int((whole - besides) / BYTES_EACH)
    return max(min(int(SHARE_OF_MEMORY * whole), left), 2 * largest)


def memory_of_process() -> int:
    """Return the maximum memory of this process in bytes: the limit of its container or, without one, the machine's
    memory.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(int(text) for path in _LIMITS if (text := _read(path)).isdecimal())])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
