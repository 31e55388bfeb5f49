"""The growth of memory and open files of processes over a long run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HEADER = f"{'process':<22}{'rounds':>7}{'MB first':>10}{'a third':>9}{'two':>6}{'last':>7}{'MB/h':>9}{'files first':>13}{'last':>6}"


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(fields["VmRSS"].split()[0]) / 1024


def open_files(pid: int) -> int:
    """Return the number of open files of a process, connections included."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    hours: float
    memory_mb: float
    files: int


@dataclass(slots=True)
class Growth:
    """Memory and open files of each process, read at the end of each round, by the process's name."""

    points: dict[str, list[Point]] = field(default_factory=lambda: defaultdict(list))

    def look(self, processes: Mapping[str, int], hours: float) -> None:
        """Read memory and files of these processes, given as name and pid, `hours` hours after the start."""
        for name, pid in processes.items():
            self.points[name].append(Point(hours=hours, memory_mb=memory_mb(pid), files=open_files(pid)))

    def mb_an_hour(self, name: str) -> float:
        """Return the slope of the process's memory in MiB an hour, over the last two thirds of the run. The first third
        is left out, because caches fill in it.
        """
        found = self.points[name]
        return slope([(one.hours, one.memory_mb) for one in found[len(found) // 3 :]])

    def files(self, name: str) -> tuple[int, int]:
        """Return two numbers of open files of the process: after the first round and after the last."""
        return self.points[name][0].files, self.points[name][-1].files

    def table(self) -> str:
        """Return a table with a line for each process: its memory after the first, some middle and the last round, and
        its open files after the first and the last round.
        """
        return "\n".join((HEADER, *map(self._line, self.points)))

    def _line(self, name: str) -> str:
        found = self.points[name]
        first, last = found[0], found[-1]
        third, two = (found[(len(found) - 1) * part // 3].memory_mb for part in (1, 2))
        return (
            f"{name:<22}{len(found):>7}{first.memory_mb:>10.0f}{third:>9.0f}{two:>6.0f}{last.memory_mb:>7.0f}"
            f"{self.mb_an_hour(name):>+9.1f}{first.files:>13}{last.files:>6}"
        )


def slope(points: list[tuple[float, float]]) -> float:
    """Return the slope of the least-squares line through the points; 0 if all x are equal."""
    n, x, y = len(points), sum(p[0] for p in points), sum(p[1] for p in points)
    square = sum(p[0] ** 2 for p in points) * n - x * x
    return (n * sum(a * b for a, b in points) - x * y) / square if square else 0.0
