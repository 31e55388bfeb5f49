"""`NO_PROXY` has the same meaning as for kubectl."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_process.proxies import is_direct, proxy_for
from fairlead_testing.examples import examples


@pytest.mark.parametrize(
    ("no_proxy", "host", "port", "direct"),
    [
        ("10.0.0.0/8,.svc,.cluster.local", "10.96.0.1", 443, True),
        ("10.0.0.0/8", "11.0.0.1", 443, False),
        ("10.0.0.0/33, 10.96.0.1", "10.96.0.1", 443, True),
        ("10.96.0.1:443", "10.96.0.1", 443, True),
        ("10.96.0.1:443", "10.96.0.1", 6443, False),
        ("fd00::/8", "fd00:10::1", 443, True),
        ("fd00:10::1", "fd00:10::1", 443, True),
        ("[fd00:10::1]:443", "fd00:10::1", 443, True),
        ("[fd00:10::1]:443", "fd00:10::1", 80, False),
        ("[fd00:10::1]", "fd00:10:0::1", 443, True),
        (".svc", "kubernetes.default.svc", 443, True),
        (".svc", "svc", 443, False),
        ("*.svc", "kubernetes.default.svc", 443, True),
        ("example.com", "api.example.com", 443, True),
        ("example.com", "example.com", 443, True),
        ("example.com", "badexample.com", 443, False),
        ("EXAMPLE.com:6443", "Api.example.COM", 6443, True),
        ("*", "anything", 1, True),
        ("", "10.96.0.1", 443, False),
        (" , ,,", "10.96.0.1", 443, False),
        ("", "127.0.0.1", 443, True),
        ("", "localhost", 443, True),
        ("", "::1", 443, True),
        ("0.1", "10.96.0.1", 443, False),
        ("not/a/network", "10.96.0.1", 443, False),
        ("10.0.0.0/8", "kubernetes.default.svc", 443, False),
    ],
)
def test_entries_mean_what_they_mean_in_go(no_proxy: str, host: str, port: int, direct: bool) -> None:
    assert is_direct(host, port, no_proxy) is direct


@given(st.ip_addresses(), st.data())
@examples(200)
def test_every_network_of_an_address_has_it(address: ipaddress.IPv4Address | ipaddress.IPv6Address, data: st.DataObject) -> None:
    bits = data.draw(st.integers(0, address.max_prefixlen))
    network = ipaddress.ip_network(f"{address}/{bits}", strict=False)
    assert is_direct(str(address), 443, f"elsewhere.example,{network}")


@given(st.text(max_size=60), st.text(max_size=30), st.integers(0, 65535))
@examples(200)
def test_no_text_is_too_odd(no_proxy: str, host: str, port: int) -> None:
    assert is_direct(host, port, no_proxy) in {True, False}


def test_the_proxy_is_that_of_the_scheme_in_either_spelling() -> None:
    environment = {"HTTPS_PROXY": "http://one:3128", "http_proxy": "http://two:3128", "NO_PROXY": "10.0.0.0/8"}
    assert proxy_for("https://api.example.com:6443", environment) == "http://one:3128"
    assert proxy_for("http://api.example.com", environment) == "http://two:3128"
    assert proxy_for("https://10.96.0.1", environment) is None
    assert proxy_for("https://10.96.0.1.:443", environment) is None
    assert proxy_for("https://api.example.com", {}) is None
