"""Chooses loopback ports (the preferred port or, if it is taken, the next free port) and claims them for one sandbox.

A port is chosen seconds before its server listens on it, and a restarted server does not listen for a while. So that no
other sandbox takes the port meanwhile, the sandbox claims it: it binds a Unix socket in the abstract namespace, named
after the port. Such a name exists once in each network namespace, like the port, and the kernel frees it when its
process ends, for whatever reason.
"""

import errno
import socket
from collections.abc import Mapping

from fairlead_sandbox.errors import SandboxError

HOST = "127.0.0.1"
TRIES = 200


class PortClaims:
    """The ports that this sandbox has claimed, by name. A claim ends with `release` or with this process."""

    def __init__(self, ports: Mapping[str, int], claims: tuple[socket.socket, ...]) -> None:
        self.ports = dict(ports)
        self._claims = claims

    def release(self) -> None:
        """Give up the claims, so that other sandboxes may use the ports. A second call does nothing."""
        for claim in self._claims:
            claim.close()


def is_free(port: int, host: str = HOST) -> bool:
    """Return whether a server could listen on this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a port in TIME_WAIT counts as free
        try:
            trial.bind((host, port))
        except OSError as problem:
            if problem.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            raise
    return True


def first_free(name: str, wish: int, host: str) -> int:
    """Return the first port, from `wish` on, that is free on `host` now, without claiming it. Raises SandboxError if no
    port near `wish` is free.
    """
    for port in _candidates(wish):
        if is_free(port, host):
            return port
    raise _none_free(name, wish, host)


def claim_ports(preferred: Mapping[str, int]) -> PortClaims:
    """Claim a free port of 127.0.0.1 for each name, in the given order and all different.

    Raises SandboxError, and claims nothing, when no port near the preferred one is free.
    """
    ports: dict[str, int] = {}
    claims: list[socket.socket] = []
    for name, wish in preferred.items():
        for port in _candidates(wish):
            claim = _claim(port)
            if claim is None:
                continue
            if is_free(port):
                ports[name] = port
                claims.append(claim)
                break
            claim.close()
        else:
            PortClaims(ports, tuple(claims)).release()
            raise _none_free(name, wish, HOST)
    return PortClaims(ports, tuple(claims))


def _candidates(wish: int) -> range:
    return range(wish, min(wish + TRIES, 65536))


def _claim(port: int) -> socket.socket | None:
    """Claim a port. Return None if it is already claimed, by another sandbox or by this sandbox under another name."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0fairlead-sandbox-port-{port}")
    except OSError as problem:
        claim.close()
        if problem.errno == errno.EADDRINUSE:
            return None
        raise
    return claim


def _none_free(name: str, wish: int, host: str) -> SandboxError:
    return SandboxError(f"no free port for {name} from {wish} to {wish + TRIES - 1} on {host}; stop the process that listens there")
