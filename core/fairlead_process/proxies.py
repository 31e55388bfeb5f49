"""Decides which requests go to the proxy named in the environment, by the rules of programs written in Go (such as
kubectl): `NO_PROXY` may list networks, addresses, names and ports. Python's own `urllib` does not know networks.

Source: golang.org/x/net/http/httpproxy, `Config.NoProxy` and `useProxy`.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def proxy_for(url: str, environment: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy to use for this URL; None if no proxy is to be used."""
    parts = urlsplit(url)
    host, port = (parts.hostname or "").removesuffix("."), parts.port or _PORTS.get(parts.scheme, 0)
    if not host or is_direct(host, port, _variable("no_proxy", environment)):
        return None
    return _variable(f"{parts.scheme}_proxy", environment) or None


def _variable(name: str, environment: Mapping[str, str]) -> str:
    return environment.get(name.upper()) or environment.get(name, "")


def is_direct(host: str, port: int, no_proxy: str) -> bool:
    """Return whether requests to this host and port bypass the proxy. Requests to this machine always bypass it."""
    host = host.lower()
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = (entry.strip().lower() for entry in no_proxy.split(","))
    return any(_names(entry, host, address, port) for entry in entries if entry)


_IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> _IpAddress | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _names(entry: str, host: str, address: _IpAddress | None, port: int) -> bool:
    """Return whether an entry matches this host: `*`, a network, or an address or name with or without a port."""
    if entry == "*":
        return True
    if "/" in entry:
        return address is not None and _has(entry, address)
    name, wanted = _parted(entry)
    if wanted not in {"", str(port)}:
        return False
    listed = _address(name)
    if listed is not None or address is not None:
        return listed == address
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _has(network: str, address: _IpAddress) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _parted(entry: str) -> tuple[str, str]:
    """Divide an entry into host and port; the port may be missing."""
    if _address(entry) is not None or entry.endswith("]"):
        return entry.removeprefix("[").removesuffix("]"), ""
    host, colon, port = entry.rpartition(":")
    return (host.removeprefix("[").removesuffix("]"), port) if colon else (entry, "")
