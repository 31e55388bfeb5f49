"""A test that ends lets the next one begin, also where its failures are counted in another process."""

import socket

import pytest


def test_the_count_of_failures_waits_for_no_acknowledgement(pytestconfig: pytest.Config) -> None:
    counts = getattr(pytestconfig, "failures_db", None)
    if counts is None:
        pytest.skip("pytest-rerunfailures is not loaded")
    assert counts.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
