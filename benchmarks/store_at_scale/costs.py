"""CPU time of processes: it says more than the time that passed on a machine that does other things."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds(parent: int) -> float:
    """User and system time of a process, of its children that live, and of those that have ended."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(entry.name) == parent:
                ticks += sum(map(int, fields[11:15]))
            elif int(fields[1]) == parent:
                ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")
