"""CPU time of processes: it says more than the time that passed on a machine that does other things."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, of its descendants that live, and of those of them that have ended."""
    ticks, family = 0, {pid}
    for one, fields in _processes():
        if one == pid or int(fields[1]) in family:
            family.add(one)
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def session_cpu_seconds(session: int) -> float:
    """User and system time of all processes of a session that live."""
    ticks = sum(int(fields[11]) + int(fields[12]) for _, fields in _processes() if int(fields[3]) == session)
    return ticks / os.sysconf("SC_CLK_TCK")


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Ids of all processes, oldest ids first, and what the kernel says of each, from its state on."""
    for stat in sorted(Path("/proc").glob("[0-9]*/stat"), key=lambda path: int(path.parent.name)):
        with suppress(OSError):
            yield int(stat.parent.name), stat.read_text(encoding="utf-8").rpartition(") ")[2].split()
