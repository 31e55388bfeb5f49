"""Chooses free loopback ports: the preferred one, or else the next free one after it."""

import errno
import socket

from fairlead_sandbox.errors import SandboxError

TRIES = 200


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a port in TIME_WAIT counts as free
        try:
            trial.bind((host, port))
        except OSError as problem:
            if problem.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            raise
    return True


def choose_ports(preferred: dict[str, int], *, host: str = "127.0.0.1") -> dict[str, int]:
    """Choose a free port for each name, in the given order and all different.

    Raises SandboxError when no port near the preferred one is free.
    """
    chosen: dict[str, int] = {}
    for name, wish in preferred.items():
        for port in range(wish, min(wish + TRIES, 65536)):
            if port not in chosen.values() and is_free(port, host):
                chosen[name] = port
                break
        else:
            raise SandboxError(f"no free port for {name} from {wish} to {wish + TRIES - 1} on {host}; stop what listens there")
    return chosen
