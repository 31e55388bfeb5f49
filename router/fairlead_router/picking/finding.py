"""Finds the pool and the gateway's path of a proxy's request, and the headers that must not reach an engine."""

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
from fairlead_router.protocols.requests import SYSTEM_HEADERS, SYSTEM_PREFIXES, is_credential
from fairlead_router.protocols.session_names import SESSION_HEADERS
from fairlead_router.serving.bodies import header_value

_SERVICE = re.compile(rb"(?:^|\|)([a-z0-9][-a-z0-9]*)\.([a-z0-9][-a-z0-9]*)\.svc\b")
_SUFFIX = b"-picker"
_LONGEST_PREFIX = 1024
"""Maximum number of bytes of a path's prefix. Each slash in the prefix costs one lookup of the rest of the path, and a
client's path may have thousands of slashes.
"""


def find_endpoint(target: bytes) -> Endpoint | None:
    """Return the gateway's endpoint for a path; None if there is none. The path may end with a slash, and may begin
    with a prefix that the proxy's route removes later.

    No prefix is allowed before a path that needs no key, and no part of a prefix may begin with `/metrics`. Engines
    serve their metrics for every path that begins with `/metrics`, so a route that keeps the prefix would expose them.
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
    """Return the pool `namespace/name` if the called authority is the pool's own Service
    `<pool>-picker.<namespace>.svc…`; None for any other authority. The operator makes such a Service for each pool
    outside of the routers' namespace.
    """
    service = _SERVICE.search(authority)
    if service is None or not service[1].endswith(_SUFFIX):
        return None
    return f"{service[2].decode()}/{service[1].removesuffix(_SUFFIX).decode()}"


def opening(key: GatewayKey | None, only: str | None) -> Opens:
    """Return the function that says which pools and models a request may use. These are the pools that its key opens.
    If the picker was called for one pool (`only`), no other pool is included.
    """
    opens = opened_by(key)
    if only is None:
        return opens

    def opens_it(pool: Pool, name: str | None = None, /) -> bool:
        return str(pool.key) == only and opens(pool, name)

    return opens_it


def session_headers(headers: HeaderList, session_header: bytes) -> dict[bytes, bytes]:
    """Return the headers that may name the session, by name: the pool's own header, and the known headers of clients
    and gateways. If a header occurs several times, the first value counts.
    """
    return {name: value for name, value in reversed(headers) if name == session_header or name in SESSION_HEADERS}


def withheld(headers: HeaderList, *, credentials: bool) -> list[bytes]:
    """Return the names of the headers that the proxy removes before an engine sees the request.

    `x-gateway-destination-endpoint` is not among them, because it is always replaced.
    """
    found: list[bytes] = []
    for name, _ in headers:
        if name in SYSTEM_HEADERS or name.startswith(SYSTEM_PREFIXES) or (not credentials and is_credential(name)):
            found.append(name)
    return list(dict.fromkeys(found))


def any_pool(pools: Pools, headers: HeaderList, opens: Opens) -> Pool:
    """Return the pool for a request that names no model: the pool that a header names, or the only pool that is open.
    Raises BadRequest 404 if this is not exactly one pool.
    """
    wanted = header_value(headers, POOL_HEADER)
    found = [pool for pool in pools.all() if opens(pool) and (wanted is None or str(pool.key) == wanted)]
    if len(found) != 1:
        known = ", ".join(str(pool.key) for pool in pools.all() if opens(pool)) or "none yet"
        message = f"x-fairlead-pool: {(wanted or 'is missing')[:200]}; such a request names no model, so name one pool of: {known}"
        raise BadRequest(404, "pool_not_found", message, "x-fairlead-pool")
    return found[0]


def members(pool: Pool, subset: tuple[str, ...]) -> tuple[str, ...]:
    """Return the pool's instances at these endpoints `ip:port`. An endpoint without a port stands for all instances at
    its address.
    """
    wanted = {one[1:-1] if one.endswith("]") else one for one in subset}
    return tuple(name for name, address in pool.addresses.items() if address in wanted or host_of(address) in wanted)


def scores_of(pool: Pool, dispatch: Dispatch) -> dict[str, float]:
    """Return the scores of the compared endpoints, from 0 to 1, by endpoint. An endpoint with several ranks has the
    score of its best rank. Empty if the request did not ask for scores.
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
