"""Starts a process: reads settings, and opens logs and sockets. An impossible start ends with one line and an exit
code.

The exit code is 2 for wrong input (a setting, an address that cannot be bound, the command line), and 1 for anything
else.
"""

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from fairlead.errors import FairleadError, InvalidInput
from fairlead_process.environment import names, read, unread, variable
from fairlead_process.kinds import Switch
from fairlead_process.logs import LogSettings, configure

logger = logging.getLogger(__name__)


class ProcessSettings(Protocol):
    """The settings that every process has."""

    @property
    def logs(self) -> LogSettings: ...


S = TypeVar("S", bound=ProcessSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSettings:
    """Settings for the reports of faults in Fairlead's own code, by a process or by the command line."""

    debug: bool = field(
        default=False,
        metadata=variable("FAIRLEAD_DEBUG", Switch(), "show where a fault happened", "1 prints tracebacks instead of one line"),
    )


@contextmanager
def one_line_errors(program: str) -> Iterator[None]:
    """End the process with one line on standard error if the block raises a FairleadError or OSError.

    The exit code is 2 if the error names an input, else 1. Any other error is a bug in Fairlead: it is logged with its
    traceback, and the code is 1.
    """
    try:
        yield
    except Exception as problem:
        if debug(os.environ):
            raise
        line = line_of(problem)
        if line is None:
            logger.exception("ended by a fault")
            sys.exit(1)
        print(f"fairlead {program}: {line}", file=sys.stderr)
        sys.exit(2 if isinstance(problem, InvalidInput) else 1)


def line_of(problem: Exception) -> str | None:
    """Return one line for a person about an error raised on purpose or by the operating system; None for a bug in
    Fairlead.

    For a group of errors, which tasks that run together may raise, the first error counts.
    """
    while isinstance(problem, ExceptionGroup):
        problem = problem.exceptions[0]
    if isinstance(problem, OSError) and problem.filename and problem.strerror:
        return f"{problem.filename}: {problem.strerror}"
    return " ".join(str(problem).splitlines()) if isinstance(problem, FairleadError | OSError) else None


def begin(reader: Callable[[Mapping[str, str]], S]) -> S:
    """Read the process's settings, set up its logs, and log the Fairlead variables that are set but that the process
    does not read.

    Raises InvalidInput.
    """
    settings = reader(os.environ)
    configure(settings.logs)
    report_unread(os.environ, names(type(settings), FaultSettings))
    return settings


def report_unread(environment: Mapping[str, str], known: frozenset[str]) -> None:
    """Log each Fairlead variable that this process does not read, because its name may be misspelt."""
    for name, similar in unread(environment, known).items():
        logger.warning("a setting is set that this process does not have", extra={"variable": name, "did_you_mean": similar or None})


def debug(environment: Mapping[str, str]) -> bool:
    """Return whether tracebacks should be shown."""
    return read(FaultSettings, environment).debug


def bind(options: str, host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a TCP socket bound to an address, ready to listen. `shared` lets other processes bind it too
    (SO_REUSEPORT).

    Raises InvalidInput, which names the options, host and port, when the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else "ports end at 65535"
        raise InvalidInput(options, f"{host}:{port}", f"choose an address this machine has and a port that is free ({reason})") from None
    listener.setblocking(False)
    return listener
