"""Ports for processes that tests start."""

import secrets
import socket
from contextlib import suppress


def free_port() -> int:
    """A port of loopback that nobody listens on, for a process that binds it later.

    It lies below those that Linux gives to outgoing connections, of which tests beside this one make many meanwhile.
    """
    while True:
        port = 12_000 + secrets.randbelow(20_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
