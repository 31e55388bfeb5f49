"""Ports for processes that tests start."""

import secrets
import socket
from contextlib import suppress


def free_port() -> int:
    """Return a free port of the loopback interface, for a process that will bind it later.

    The port is below the ports that Linux gives to outgoing connections. Other tests that run at the same time use many
    of those ports.
    """
    while True:
        port = 12_000 + secrets.randbelow(20_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
