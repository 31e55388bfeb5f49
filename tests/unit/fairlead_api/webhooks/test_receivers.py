"""Permitted receivers of notices: public addresses by https, others only in named networks, in all forms of an
address.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead_api.webhooks.receivers import NotAllowed, Receiver, allowed, judged, receiver_of
from fairlead_testing.examples import examples

INSIDE = (ip_network("10.1.0.0/16"), ip_network("fd00:1::/32"))
PRIVATE = [ip_network(text) for text in ("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")]
private_addresses = st.sampled_from(PRIVATE).flatmap(lambda network: st.ip_addresses(network=network))


def https(host: str = "hooks.example.com") -> Receiver:
    return receiver_of(f"https://{host}/x")


@examples(200)
@given(address=private_addresses, prefix=st.sampled_from(("::ffff:0:0", "64:ff9b::", "2002")))
def test_no_private_address_is_reached_as_itself_or_within_another(address: IPv4Address, prefix: str) -> None:
    number = int(address)
    within = IPv6Address((0x2002 << 112) + (number << 80)) if prefix == "2002" else IPv6Address(int(IPv6Address(prefix)) + number)
    for found in (address, within):
        with pytest.raises(NotAllowed, match="neither public nor in the networks"):
            allowed(https(), [found], ())


@pytest.mark.parametrize("text", ["::1", "::", "0.0.0.0", "fe80::1", "fd00:ec2::254", "fc00::1", "224.0.0.1", "ff02::1", "255.255.255.255"])
def test_special_addresses_are_refused(text: str) -> None:
    with pytest.raises(NotAllowed):
        allowed(https(), [ip_address(text)], ())


def test_a_named_network_is_allowed_by_http_too_and_public_ones_only_by_https() -> None:
    plain, inside, public = receiver_of("http://receiver.chat.svc/x"), ip_address("10.1.2.3"), ip_address("93.184.216.34")
    assert allowed(plain, [inside], INSIDE) == allowed(https(), [inside], INSIDE) == inside
    assert allowed(https(), [ip_address("10.2.0.1"), public], INSIDE) == public, "the first that is allowed"
    assert allowed(https(), [ip_address("2606:4700::1")], ()) == ip_address("2606:4700::1")
    with pytest.raises(NotAllowed, match="http is only for these"):
        allowed(plain, [public], INSIDE)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example.com/secret",
        "ftp://hooks.example.com/secret",
        "https:///secret",
        "https://user:secret@hooks.example.com/",
        "https://hooks.example.com/#secret",
        "https://hooks.example.com:0/secret",
        "https://hooks.example.com:99999/secret",
        "https://hooks.example.com/sec ret",
        "https://hooks.example.com\\@10.0.0.1/secret",
        "https://[::1/secret",
        "https://hooks.example.com/secret\n",
        "https://hooks.exämple.com/secret",
        "https://hooks.example.com/" + "secret" * 400,
    ],
)
def test_an_address_that_cannot_be_used_is_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        receiver_of(url)
    assert refused.value.field == "url"
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["https://10.0.0.1/secret", "http://93.184.216.34/secret", "http://[fe80::1]/secret"])
def test_an_ip_address_that_is_not_allowed_is_refused_when_it_is_written(url: str) -> None:
    for networks in ((), INSIDE):
        with pytest.raises(InvalidInput) as refused:
            judged(receiver_of(url), networks)
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://Hooks.Example.com/secret?token=secret", "https://hooks.example.com"),
        ("https://hooks.example.com:8443/secret", "https://hooks.example.com:8443"),
        ("https://[2606:4700::1]/secret", "https://[2606:4700::1]"),
        ("http://receiver:80/secret", "http://receiver"),
    ],
)
def test_only_the_origin_of_an_address_is_shown(url: str, origin: str) -> None:
    receiver = receiver_of(url)
    assert receiver.origin == origin
    assert "secret" not in repr(receiver)
