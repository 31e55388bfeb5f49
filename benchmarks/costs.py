"""CPU time of processes, which depends much less than elapsed time on the machine's other work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """Return the user and system seconds of a process and of its living descendants.

    Children of these processes that have ended count too.
    """
    ticks, family = 0, {pid}
    for one, fields in _processes():
        if one == pid or int(fields[1]) in family:
            family.add(one)
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def session_cpu_seconds(session: int) -> float:
    """Return the user and system seconds of all living processes of a session."""
    ticks = sum(int(fields[11]) + int(fields[12]) for _, fields in _processes() if int(fields[3]) == session)
    return ticks / os.sysconf("SC_CLK_TCK")


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Yield the ids of all processes in ascending order, each with its fields of /proc/<pid>/stat from the state on."""
    for stat in sorted(Path("/proc").glob("[0-9]*/stat"), key=lambda path: int(path.parent.name)):
        with suppress(OSError):
            yield int(stat.parent.name), stat.read_text(encoding="utf-8").rpartition(") ")[2].split()
