"""Ports: the preferred one, or the next free after it."""

import socket
from collections.abc import Iterator

import pytest

from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.ports import choose_ports, is_free


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_taken_port_is_replaced_by_the_next_free_one(taken: int) -> None:
    chosen = choose_ports({"api": taken})["api"]
    assert taken < chosen < taken + 200
    assert is_free(chosen)


def test_two_processes_that_wish_for_one_port_get_two(taken: int) -> None:
    chosen = choose_ports({"router-0": taken, "router-1": taken})
    assert len(set(chosen.values())) == 2


def test_a_listener_on_every_address_is_seen_at_an_address_nobody_uses(taken: int) -> None:
    assert is_free(taken, "127.39.255.254"), "it listens on one address only"
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        assert not is_free(everywhere.getsockname()[1], "127.39.255.254")


def test_a_port_beyond_the_last_is_refused_by_name() -> None:
    with pytest.raises(SandboxError, match="no free port for api from 70000"):
        choose_ports({"api": 70000})
