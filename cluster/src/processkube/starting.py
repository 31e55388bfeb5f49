"""The start of a process: its logs, its socket, and a single line on standard error if it cannot start.

If an option cannot be used, the exit code is 2, the same as for a wrong command line. For any other failure to start,
it is 1.
"""

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from processkube.errors import InvalidInput, ProcesskubeError
from processkube.logs import LEVELS, configure

DEBUG = "PROCESSKUBE_DEBUG"
"""Environment variable. If it is `1`, an error is shown with its traceback, not as one line."""

_log = logging.getLogger(__name__)
_Command = TypeVar("_Command", bound=Callable[..., Any])


def log_options(command: _Command) -> _Command:
    """Add the options `--log-level` and `--log-format`, which all commands have, to a command."""
    level = click.option("--log-level", type=click.Choice(LEVELS), default="INFO", envvar="PROCESSKUBE_LOG_LEVEL", show_default=True)
    form = click.option(
        "--log-format", type=click.Choice(("text", "json")), default="text", envvar="PROCESSKUBE_LOG_FORMAT", show_default=True
    )
    return form(level(command))


@contextmanager
def one_line_errors(program: str, *, log_level: str = "INFO", log_format: str = "text") -> Iterator[None]:
    """Set up the logs. If the block raises a ProcesskubeError or OSError, end the process with one line on standard
    error.

    Any other error is a bug. It is logged with its traceback, and the exit code is 1.
    """
    configure(level=log_level, as_json=log_format == "json")
    try:
        yield
    except Exception as problem:
        if os.environ.get(DEBUG) == "1":
            raise
        if not isinstance(problem, ProcesskubeError | OSError):
            _log.exception("ended by a fault")
            sys.exit(1)
        named = isinstance(problem, OSError) and problem.filename and problem.strerror
        line = f"{problem.filename}: {problem.strerror}" if named else " ".join(str(problem).splitlines())  # type: ignore[union-attr]
        print(f"processkube {program}: {line}", file=sys.stderr)
        sys.exit(2 if isinstance(problem, InvalidInput) else 1)


def bind(options: str, host: str, port: int) -> socket.socket:
    """Return a TCP socket that is bound to an address and ready to listen.

    Raises InvalidInput if the address cannot be bound; `options` names the options for host and port in the message.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else "ports end at 65535"
        raise InvalidInput(options, f"{host}:{port}", f"choose an address this machine has and a port that is free ({reason})") from None
    listener.setblocking(False)
    return listener
