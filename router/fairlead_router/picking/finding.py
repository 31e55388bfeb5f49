"""Which pool and which path of the gateway a request at a proxy means, and what must not reach its engine."""

from __future__ import annotations

import re

from fairlead_router import paths
from fairlead_router.keys import GatewayKey
from fairlead_router.paths import Endpoint
from fairlead_router.picking.messages import HeaderList
from fairlead_router.pool import Pool
from fairlead_router.pools import Opens
from fairlead_router.requests import SESSION_HEADERS
from fairlead_router.routed_requests import opened_by

SYSTEM_HEADERS = frozenset(
    {
        b"accept-encoding",  # answers are read for usage, so engines must not compress them
        b"x-prefiller-host-port", b"x-encoder-hosts-ports", b"x-data-parallel-host-port", b"x-kv-cache-source-host-port",
        b"x-gateway-destination-endpoint-subset", b"x-gateway-destination-endpoint-served", b"x-llm-d-request-dropped-reason",
    }
)  # fmt: skip
"""What only the system may say to an engine. `x-gateway-destination-endpoint` is always replaced."""

_CREDENTIALS = frozenset({b"authorization", b"cookie", b"x-api-key"})
_SERVICE = re.compile(rb"(?:^|\|)([a-z0-9][-a-z0-9]*)\.([a-z0-9][-a-z0-9]*)\.svc\b")
_SUFFIX = b"-picker"


def find_endpoint(target: bytes) -> Endpoint | None:
    """The gateway's endpoint of a path, also of one with a prefix that a route takes away afterwards.

    What needs no key has no prefix: where none is taken away, an engine would serve `/metrics/health` as its metrics.
    """
    path = target.partition(b"?")[0]
    found = paths.find(path)
    place = path.find(b"/", 1)
    while found is None and place > 0:
        found = paths.find(path[place:])
        if found is not None and found.keyless:
            found = None
        place = path.find(b"/", place + 1)
    return found


def pool_of_service(authority: bytes) -> str | None:
    """The pool `namespace/name` whose own Service for proxies was called: `<pool>-picker.<namespace>.svc…`, which the
    operator makes for pools of other namespaces than the routers'.
    """
    service = _SERVICE.search(authority)
    if service is None or not service[1].endswith(_SUFFIX):
        return None
    return f"{service[2].decode()}/{service[1].removesuffix(_SUFFIX).decode()}"


def opening(key: GatewayKey | None, only: str | None) -> Opens:
    """What a request may use: what its key opens, and of that only one pool if the picker was asked for that one."""
    opens = opened_by(key)
    if only is None:
        return opens

    def opens_it(pool: Pool, name: str | None = None, /) -> bool:
        return str(pool.key) == only and opens(pool, name)

    return opens_it


def session_of(headers: HeaderList, session_header: bytes) -> bytes | None:
    """The session's name, by the pool's own header or else by one of other gateways."""
    peer: bytes | None = None
    own: bytes | None = None
    for name, value in headers:
        if name == session_header:
            own = value
        elif name in SESSION_HEADERS:
            peer = value
    return own or peer


def withheld(headers: HeaderList, *, credentials: bool) -> list[bytes]:
    """Names of headers that are taken away before an engine sees the request."""
    found: list[bytes] = []
    for name, _ in headers:
        if name in SYSTEM_HEADERS or name.startswith(b"x-fairlead-") or (name in _CREDENTIALS and not credentials):
            found.append(name)
    return list(dict.fromkeys(found))
