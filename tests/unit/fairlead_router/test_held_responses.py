"""Responses that engines hold, as far as a router remembers them."""

from fairlead.tables import PoolKey
from fairlead_router.held_responses import HeldResponses

POOL = PoolKey(namespace="default", name="chat")


def test_the_response_asked_for_longest_ago_is_forgotten_first() -> None:
    held = HeldResponses(limit=2)
    held.remember("a", POOL, "i0")
    held.remember("b", POOL, "i1")
    assert held.find("a") == (POOL, "i0")
    held.remember("c", POOL, "i2")
    held.remember(None, POOL, "i3")
    assert held.find("b") is None
    assert held.find("a") == (POOL, "i0")
    assert len(held) == 2
