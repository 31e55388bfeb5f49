"""Makes parallel tests end faster. `pytest-rerunfailures` makes each test write to its controller twice in a row. TCP
holds back the second write until the first is acknowledged, and the kernel delays the acknowledgement by 40 ms. This
was half of the time of a lane of short tests.
"""

import socket

import pytest


def send_at_once(config: pytest.Config) -> None:
    """Switch Nagle's algorithm off on the connection between a test process and its controller. A conftest.py must call
    this after pytest-rerunfailures was configured; without that plugin, or in a single process, nothing changes.
    """
    connection = getattr(getattr(config, "failures_db", None), "sock", None)
    if isinstance(connection, socket.socket):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
