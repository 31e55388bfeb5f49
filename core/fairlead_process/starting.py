"""How a process begins: its settings, its logs, its sockets; and how a start that is impossible ends:
one line, and an exit code.

2 for what a person wrote (a setting, an address that cannot be listened on), as for a wrong command
line; 1 for anything else.
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
    """Settings of a process, whatever else they have."""

    @property
    def logs(self) -> LogSettings: ...


S = TypeVar("S", bound=ProcessSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSettings:
    """How a process, or the command line, shows a fault of its own."""

    debug: bool = field(
        default=False,
        metadata=variable("FAIRLEAD_DEBUG", Switch(), "show where a fault happened", "1 prints tracebacks instead of one line"),
    )


@contextmanager
def one_line_errors(program: str) -> Iterator[None]:
    """Ends the process with one line on standard error when the block raises a FairleadError or OSError: with code 2 if
    it names an input, else 1.

    Anything else it raises is a fault of ours: logged with its traceback, code 1.
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
    """One line for a person, of an error that was raised on purpose or by the operating system;
    None for a fault of ours.
    """
    if isinstance(problem, OSError) and problem.filename and problem.strerror:
        return f"{problem.filename}: {problem.strerror}"
    return " ".join(str(problem).splitlines()) if isinstance(problem, FairleadError | OSError) else None


def begin(reader: Callable[[Mapping[str, str]], S]) -> S:
    """Reads the process' settings, sets up its logs, and reports variables that are set and that the process does not
    read. Raises InvalidInput.
    """
    settings = reader(os.environ)
    configure(settings.logs)
    report_unread(os.environ, names(type(settings), FaultSettings))
    return settings


def report_unread(environment: Mapping[str, str], known: frozenset[str]) -> None:
    """A log line for each variable of ours that nobody here reads: it may be misspelt."""
    for name, similar in unread(environment, known).items():
        logger.warning("a setting is set that this process does not have", extra={"variable": name, "did_you_mean": similar or None})


def debug(environment: Mapping[str, str]) -> bool:
    """Whether tracebacks are wanted."""
    return read(FaultSettings, environment).debug


def bind(options: str, host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A TCP socket bound to an address, ready to listen. `shared` lets other processes bind it too (SO_REUSEPORT).

    Raises InvalidInput naming the options, host and port when it cannot be had.
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
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(options, f"{host}:{port}", f"choose an address this machine has and a port that is free ({reason})") from None
    listener.setblocking(False)
    return listener
