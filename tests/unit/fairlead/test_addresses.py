"""Addresses with IPv6 hosts in brackets."""

import pytest

from fairlead.addresses import host_of, joined


@pytest.mark.parametrize(
    ("host", "address"), [("10.0.0.1", "10.0.0.1:80"), ("engine", "engine:80"), ("fd00::5", "[fd00::5]:80"), ("::", "[::]:80")]
)
def test_a_host_and_a_port_are_joined_and_found_again(host: str, address: str) -> None:
    assert joined(host, 80) == address
    assert host_of(address) == host
