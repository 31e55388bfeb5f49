"""The entries of the supervisor's table, as data: processes, and one-time steps between them.

Names are unique. `needs` names the processes that must be ready and the steps that must be done before an entry starts.
Entries that do not need each other may start in parallel.
"""

import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fairlead_sandbox.errors import SandboxError


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedLine:
    """A readiness check: the process is ready once it has printed a line that starts with `prefix`."""

    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """A readiness check: the process is ready once a GET of `url` (plain HTTP) has returned a status from 200 to
    399.
    """

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A readiness check: the process is ready once `check` returns true. `check` is called repeatedly until then."""

    check: Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A readiness check: the process is ready as soon as it runs, because nothing depends on its work."""


Readiness = PrintedLine | HttpAnswer | Asked | Started


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """One process.

    `environment` is evaluated at each start and added to the supervisor's environment; `before_start` runs before every
    start, restarts included.
    """

    name: str
    command: tuple[str, ...]
    readiness: Readiness
    environment: Mapping[str, str] = field(default_factory=dict)
    reads: frozenset[str] = frozenset()
    """The Fairlead variables of the user's environment that the process gets; it gets no other Fairlead variables."""
    needs: tuple[str, ...] = ()
    before_start: Callable[[], None] | None = None
    stop_signal: int = signal.SIGTERM
    stop_grace_seconds: float = 8.0
    orphan_signal: int = signal.SIGKILL
    """The signal that the process gets when the supervisor dies.

    It may be weaker than SIGKILL only if the process then cleans up and ends.
    """
    start_timeout_seconds: float = 180.0
    """Maximum seconds of a start before it counts as hanging. On a busy machine, the timeout is extended as long as the
    process makes progress (`supervised_process.StartingTime`). The end of a process is noticed at once.
    """
    console: bool = True
    """Whether the process's output is shown in the merged stream. The log file has the output in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An action that is done once, when the entries that it needs are ready or done. If it fails, the start fails."""

    name: str
    run: Callable[[], Awaitable[None]]
    needs: tuple[str, ...] = ()


Node = ProcessSpec | Step


def in_start_order(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes, sorted so that each comes after the nodes that it needs.

    Raises SandboxError for an unknown need, a duplicate name or a cycle.
    """
    by_name = {node.name: node for node in nodes}
    if len(by_name) != len(nodes):
        raise SandboxError("process table: two entries have the same name")
    ordered: dict[str, Node] = {}

    def place(node: Node, path: tuple[str, ...]) -> None:
        if node.name in path:
            raise SandboxError(f"process table: {' needs '.join((*path, node.name))}, which is a cycle")
        for need in node.needs:
            if need not in by_name:
                raise SandboxError(f"process table: {node.name} needs {need}, which is not in the table")
            place(by_name[need], (*path, node.name))
        ordered.setdefault(node.name, node)

    for node in nodes:
        place(node, ())
    return tuple(ordered.values())
