"""The memory that clients' bodies take together: it is bounded, and each request holds a share of it while it lasts."""

from __future__ import annotations

import os
from pathlib import Path

SHARE_OF_MEMORY = 0.25
"""The share of the process's memory for bodies as received. Decoding and reading them takes as much again."""

_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


class MemoryFull(Exception):
    """The bodies of all requests together take as much memory as they may."""


class BodyMemory:
    """Bytes of bodies that are `held`, and the `most` there may be."""

    __slots__ = ("held", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0


class MemoryShare:
    """One request's share of the memory for bodies. It must be released however the request ends."""

    __slots__ = ("_memory", "held")

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self.held = 0

    def take(self, size: int) -> bool:
        """Hold `size` bytes more, if there is room for them."""
        memory = self._memory
        if memory.held + size > memory.most:
            return False
        memory.held += size
        self.held += size
        return True

    def release(self, size: int | None = None) -> None:
        """Hold `size` bytes less, or none at all."""
        size = self.held if size is None else min(size, self.held)
        self._memory.held -= size
        self.held -= size


def memory_for_bodies(largest: int) -> int:
    """Bytes for bodies where no setting says it: a quarter of the process's memory, and room for two of `largest`."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [int(text) for path in _LIMITS if (text := _read(path)).isdecimal()]
    return max(int(SHARE_OF_MEMORY * min([machine, *limits])), 2 * largest)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
