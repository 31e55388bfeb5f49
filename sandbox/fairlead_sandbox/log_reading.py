"""`fairlead logs` prints the last lines of the processes' log files, and the lines that are added to them."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.state_directory import StateDirectory

BLOCK_BYTES = 256 * 1024


def find_logs(directory: StateDirectory, name: str | None) -> dict[str, Path]:
    """Return the log files by process name: all of them, or only the log of the process or pod called `name`
    (`demo-babc12`).

    Raises SandboxError when there is no such log.
    """
    processes = {path.stem: path for path in sorted(directory.logs.glob("*.log"))}
    if name is None:
        if not processes:
            raise SandboxError(f"no logs in {directory.logs}; `fairlead up` starts a sandbox")
        return processes
    pods = {path.stem.partition("_")[2]: path for path in sorted((directory.kubernetes / "logs").glob("*.log"))}
    found = processes.get(name) or pods.get(name)
    if found is None:
        raise SandboxError(f"no log of {name!r}; there are logs of: {', '.join([*processes, *pods]) or 'none'}")
    return {name: found}


def last_lines(path: Path, count: int) -> tuple[list[str], int]:
    """Return the last lines of a file, and the position of its end, from which `follow` continues."""
    blocks: list[bytes] = []
    newlines = 0
    with path.open("rb") as file:
        end = position = file.seek(0, 2)
        while position and newlines <= count > 0:  # one more, as the last line may end in one
            start = max(0, position - BLOCK_BYTES)
            file.seek(start)
            blocks.append(file.read(position - start))
            newlines += blocks[-1].count(b"\n")
            position = start
    lines = b"".join(reversed(blocks)).removesuffix(b"\n").split(b"\n") if blocks else []
    return [line.decode(errors="replace") for line in lines[-count:]], end


def follow(
    logs: dict[str, Path], ends: dict[str, int], *, poll_seconds: float = 0.2, wait: Callable[[float], None] = time.sleep
) -> Iterator[tuple[str, str]]:
    """Yield (name, line) for each line that is added after the positions `ends`, until `wait` raises an error.

    If a file was truncated or moved away, reading continues at the beginning of the new file.
    """
    positions = dict(ends)
    rests = dict.fromkeys(logs, b"")
    while True:
        quiet = True
        for name, path in logs.items():
            try:
                size = path.stat().st_size
                if size < positions[name]:
                    positions[name], rests[name] = 0, b""
                if size == positions[name]:
                    continue
                with path.open("rb") as file:
                    file.seek(positions[name])
                    data = file.read(BLOCK_BYTES)
            except FileNotFoundError:
                positions[name] = 0
                continue
            quiet = False
            positions[name] += len(data)
            *lines, rests[name] = (rests[name] + data).split(b"\n")
            for line in lines:
                yield name, line.decode(errors="replace")
        if quiet:
            wait(poll_seconds)
