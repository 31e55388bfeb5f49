"""Which priority class a request has: what its client asks for, up to what that client may have.

The headers are those of llm-d's endpoint picker, the newer name first; there they name an InferenceObjective, here a
class of the pool. A key of the gateway's own settings is the operator's, and so is trusted; one that people made may
have at most its own class; and nobody, who is served where no key is required, is trusted as the settings say.
"""

from __future__ import annotations

from fairlead.tables import DEFAULT_CLASS
from fairlead_router.bodies import header_value
from fairlead_router.keys import GatewayKey
from fairlead_router.pool import Pool

OBJECTIVE_HEADERS = (b"x-llm-d-inference-objective", b"x-gateway-inference-objective")


def priority_class(headers: list[tuple[bytes, bytes]], key: GatewayKey | None, pool: Pool, *, trusted: bool) -> str:
    """The class of a request for the pool. `trusted`: without a key, any class may be asked for."""
    if not pool.classes.are_declared:
        return DEFAULT_CLASS
    asked = next((value for name in OBJECTIVE_HEADERS if (value := header_value(headers, name)) is not None), None)
    return pool.classes.granted(None if asked is None else asked.strip(), _ceiling(key, trusted=trusted))


def _ceiling(key: GatewayKey | None, *, trusted: bool) -> str | None:
    if key is None:
        return None if trusted else DEFAULT_CLASS
    return None if key.is_shared else key.facts.priority_class or DEFAULT_CLASS
