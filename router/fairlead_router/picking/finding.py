"""Which pool and which path of the gateway a request at a proxy means, and what must not reach its engine."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from fairlead.addresses import host_of
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.explanations.scores import relative_scores
from fairlead.targets import instance_of
from fairlead_process.policies import installed_policies
from fairlead_router.gateway.routed_requests import POOL_HEADER, opened_by
from fairlead_router.picking.messages import HeaderList
from fairlead_router.pools.keys import GatewayKey
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Opens, Pools
from fairlead_router.protocols import paths
from fairlead_router.protocols.paths import Endpoint
from fairlead_router.protocols.refusals import BadRequest
from fairlead_router.protocols.requests import SYSTEM_HEADERS, is_credential
from fairlead_router.protocols.session_names import SESSION_HEADERS
from fairlead_router.serving.bodies import header_value

_SERVICE = re.compile(rb"(?:^|\|)([a-z0-9][-a-z0-9]*)\.([a-z0-9][-a-z0-9]*)\.svc\b")
_SUFFIX = b"-picker"
_LONGEST_PREFIX = 1024
"""Bytes of a path's prefix. Each slash in it is looked at, and thousands fit into a client's path."""


def find_endpoint(target: bytes) -> Endpoint | None:
    """The gateway's endpoint of a path, also of one that ends in a slash, or with a prefix that a route takes away
    afterwards.

    A path that needs no key has no prefix, and no part of a prefix begins with `/metrics`: if the route does not remove
    it, engines serve their metrics for every path that begins so.
    """
    path = target.partition(b"?")[0].removesuffix(b"/")
    found = paths.find(path)
    place = path.find(b"/", 1)
    while found is None and 0 < place <= _LONGEST_PREFIX:
        found = paths.find(path[place:])
        if found is not None and (found.keyless or b"/metrics" in unquote_to_bytes(path[:place])):
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
    """The pools that a request may use: those that its key opens, and only one of them if the picker was asked for that
    one.
    """
    opens = opened_by(key)
    if only is None:
        return opens

    def opens_it(pool: Pool, name: str | None = None, /) -> bool:
        return str(pool.key) == only and opens(pool, name)

    return opens_it


def session_headers(headers: HeaderList, session_header: bytes) -> dict[bytes, bytes]:
    """The headers that may name the session: the pool's own, and those of clients and other gateways."""
    return {name: value for name, value in headers if name == session_header or name in SESSION_HEADERS}


def withheld(headers: HeaderList, *, credentials: bool) -> list[bytes]:
    """Names of headers that are removed before an engine sees the request.

    `x-gateway-destination-endpoint` is not among them: it is always replaced.
    """
    found: list[bytes] = []
    for name, _ in headers:
        if name in SYSTEM_HEADERS or name.startswith(b"x-fairlead-") or (not credentials and is_credential(name)):
            found.append(name)
    return list(dict.fromkeys(found))


def any_pool(pools: Pools, headers: HeaderList, opens: Opens) -> Pool:
    """The pool of a request that names no model. Raises BadRequest 404 when several could be meant."""
    wanted = header_value(headers, POOL_HEADER)
    found = [pool for pool in pools.all() if opens(pool) and (wanted is None or str(pool.key) == wanted)]
    if len(found) != 1:
        known = ", ".join(str(pool.key) for pool in pools.all() if opens(pool)) or "none yet"
        message = f"x-fairlead-pool: {(wanted or 'is missing')[:200]}; such a request names no model, so name one pool of: {known}"
        raise BadRequest(404, "pool_not_found", message, "x-fairlead-pool")
    return found[0]


def members(pool: Pool, subset: tuple[str, ...]) -> tuple[str, ...]:
    """Instances of the pool among endpoints `ip:port`; one without a port means all of that address."""
    wanted = {one[1:-1] if one.endswith("]") else one for one in subset}
    return tuple(name for name, address in pool.addresses.items() if address in wanted or host_of(address) in wanted)


def scores_of(pool: Pool, dispatch: Dispatch) -> dict[str, float]:
    """How the compared endpoints compare, from 0 to 1, an endpoint with several ranks by its best one; empty for a
    request that did not ask for it.
    """
    if not dispatch.compared:
        return {}
    found: dict[str, float] = {}
    terms = installed_policies().terms(pool.table.routing.policy)
    for target, score in relative_scores(terms, dispatch.compared).items():
        address = pool.addresses.get(instance_of(target))
        if address is not None:
            found[address] = max(score, found.get(address, 0.0))
    return found
