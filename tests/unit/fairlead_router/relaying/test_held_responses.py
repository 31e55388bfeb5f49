"""Responses that engines hold, as far as a router remembers their instances."""

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.tables import PoolKey
from fairlead_router.pools.tickets import Ticket
from fairlead_router.relaying.held_responses import HeldResponses

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


def test_a_response_belongs_to_its_requests_session_and_one_without_begins_a_session() -> None:
    held = HeldResponses()
    request = RoutingRequest(id="r", arrived_at=0.0, prompt_tokens=1, blocks=(), first_bytes_hash=0, session="s1")
    held.remember("a", POOL, "i0", Ticket(request))
    held.remember("b", POOL, "i0")
    assert (held.session("a"), held.session("b"), held.session("unknown")) == ("s1", "b", "unknown")
