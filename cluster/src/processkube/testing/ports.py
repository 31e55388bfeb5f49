"""Ports for processes that tests start."""

import secrets
import socket
from contextlib import suppress


def free_port() -> int:
    """Return a free loopback port, for a process that binds it later.

    It lies below the ports that Linux gives to outgoing connections, which tests running at the same time use in
    numbers.
    """
    while True:
        port = 12_000 + secrets.randbelow(20_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
