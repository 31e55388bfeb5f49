"""Network addresses of the form `host:port`; an IPv6 address is written in brackets (RFC 3986, 3.2.2)."""


def joined(host: str, port: int) -> str:
    """Return the address of a host (a name, an IPv4 or an IPv6 address without brackets) and a port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(address: str) -> str:
    """Return the host of an address, without brackets."""
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")
