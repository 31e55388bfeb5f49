"""The memory for all bodies in progress: bodies of requests, and of answers that their clients do not read.

The memory is bounded, and so is the part of each owner, an API key or a proxy's connection; each request holds a share
of it while it lasts. Above `soft` reading of bodies pauses, at `most` bodies are refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

SHARE_OF_MEMORY = 0.25
"""The share of the process's memory that bodies get if the rest is enough for everything else."""
SOFT_SHARE = 0.875
SHARE_OF_OWNER = 0.5

_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


BYTES_EACH = 1.5
"""Bytes of memory for each byte of a body in progress, including the allocator's overhead and occasional copies."""
WORTH_GIVING_BACK = 32 * 1024 * 1024
"""Bytes of bodies released since the last time, before memory is returned to the system, which takes some time."""


class MemoryFull(Exception):
    """The bodies of all requests together have reached their memory limit."""


class Owner(Protocol):
    """An owner of requests that share a part of the memory."""

    body_bytes: int


class BodyMemory:
    """The memory for bodies, in bytes: `held` now, `most` at once, and `most_each` of one owner, which is at least the
    `largest` body.
    """

    __slots__ = ("_highest", "held", "most", "most_each", "soft")

    def __init__(self, most: int, largest: int = 0) -> None:
        self.most = most
        self.most_each = max(int(SHARE_OF_OWNER * most), min(largest, most))
        self.soft = int(SOFT_SHARE * most)
        self.held = 0
        self._highest = 0

    def look(self) -> None:
        """Record how much is held; called many times a second."""
        if self.held > self._highest:
            self._highest = self.held

    def has_fallen(self) -> bool:
        """Return whether so much less is held than before that memory should be returned to the system; called now and
        then.
        """
        if self._highest - self.held < WORTH_GIVING_BACK:
            return False
        self._highest = self.held
        return True


class MemoryShare:
    """One request's share of the memory for bodies, and of its owner's part if it has an owner. The share must be
    released however the request ends.
    """

    __slots__ = ("_memory", "_owner", "held")

    def __init__(self, memory: BodyMemory, owner: Owner | None = None) -> None:
        self._memory = memory
        self._owner = owner
        self.held = 0

    def take(self, size: int) -> bool:
        """Reserve `size` bytes more; return False if there is no room for them."""
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

    def release(self, size: int | None = None) -> None:
        """Release `size` bytes, or all bytes."""
        size = self.held if size is None else min(size, self.held)
        self._memory.held -= size
        if self._owner is not None:
            self._owner.body_bytes -= size
        self.held -= size


def memory_for_bodies(largest: int, besides: int = 0, memory: int | None = None) -> int:
    """Return the bytes for bodies if no setting names them: a quarter of the process's `memory`, or less if the process
    needs much `besides`, but room for two bodies of the size `largest`.
    """
    whole = memory_of_process() if memory is None else memory
    left = int((whole - besides) / BYTES_EACH)
    return max(min(int(SHARE_OF_MEMORY * whole), left), 2 * largest)


def memory_of_process() -> int:
    """Return the bytes that this process may take, by its container or else by the machine."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(int(text) for path in _LIMITS if (text := _read(path)).isdecimal())])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
