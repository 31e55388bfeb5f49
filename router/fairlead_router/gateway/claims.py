"""Finds the tenant and the priority class of a request. Names that the client sends count only if the client is
trusted.

The names of the headers come from llm-d's endpoint picker. If a header has an old and a new name, the new name counts.
The class is llm-d's InferenceObjective, and one of the pool's priority classes in Fairlead. A key from the gateway's
settings belongs to the operator, and is trusted. With a key that a person made, a request gets at most the key's class,
and belongs to the key's tenant. If no key is required, the settings say whether a client without a key is trusted.
"""

from __future__ import annotations

from xxhash import xxh3_64_hexdigest

from fairlead.tables import DEFAULT_CLASS, FAIR_TENANTS
from fairlead_router.pools.keys import GatewayKey
from fairlead_router.pools.pool import Pool
from fairlead_router.serving.bodies import header_value

OBJECTIVE_HEADERS = (b"x-llm-d-inference-objective", b"x-gateway-inference-objective")
FAIRNESS_HEADERS = (b"x-llm-d-inference-fairness-id", b"x-gateway-inference-fairness-id")

Shown = list[tuple[bytes, bytes]]


def priority_class(headers: Shown, key: GatewayKey | None, pool: Pool, *, trusted: bool) -> str:
    """Return the priority class of a request for the pool. `trusted`: whether a client without a key may ask for any
    class.
    """
    if not pool.classes.are_declared:
        return DEFAULT_CLASS
    asked = _first(headers, OBJECTIVE_HEADERS)
    ceiling = None if _is_trusted(key, trusted=trusted) else (None if key is None else key.facts.priority_class) or DEFAULT_CLASS
    return pool.classes.granted(asked, ceiling)


def tenant(headers: Shown, key: GatewayKey | None, pool: Pool, *, trusted: bool) -> str:
    """Return the tenant of a request for the pool. It is the id of the request's key, or a digest of the tenant name if
    a trusted client sends one. It is "" if there is neither, or the pool does not share its capacity among tenants.
    """
    if pool.table.routing.fairness != FAIR_TENANTS:
        return ""
    if _is_trusted(key, trusted=trusted):
        named = _first(headers, FAIRNESS_HEADERS)
        return f"named/{xxh3_64_hexdigest(named.encode())}" if named else ""
    return "" if key is None else key.facts.id


def may_explain(key: GatewayKey | None, *, anybody: bool) -> bool:
    """Return whether the client may have the routing decision of its request kept. `anybody`: whether a client without
    a key may.
    """
    return anybody if key is None else key.is_shared or key.facts.explain


def _first(headers: Shown, names: tuple[bytes, ...]) -> str | None:
    return next((value.strip() for name in names if (value := header_value(headers, name)) is not None), None)


def _is_trusted(key: GatewayKey | None, *, trusted: bool) -> bool:
    return trusted if key is None else key.is_shared
