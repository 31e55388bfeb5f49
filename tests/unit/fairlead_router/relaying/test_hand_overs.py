"""Answers of a draining instance are examined one after another, and other tasks run between them."""

import asyncio
from types import SimpleNamespace
from typing import Any

from fairlead.instances import InstanceState
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead_router.relaying.carrying_on import HandOvers
from fairlead_testing.builders.routing_tables import routing_table

ADDRESS = "127.0.0.1:1"


class Looked:
    """An answer that cannot be handed over; it records in which turn of the loop it was examined."""

    def __init__(self) -> None:
        self.turn = 0
        self.asked: list[int] = []

    def may_hand_over(self, *_: Any) -> bool:
        self.asked.append(self.turn)
        return False

    async def count(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)


def begun_call() -> Any:
    request = RoutingRequest(id="r", arrived_at=0.0, prompt_tokens=1, blocks=(), first_bytes_hash=0)
    verdict = object.__new__(Dispatch)
    for name, given in {"request": request, "instance": "i0", "decode": None}.items():
        object.__setattr__(verdict, name, given)
    kept = SimpleNamespace(pieces=[b"x"], has_content=True, settle_if_large=lambda: None)
    return SimpleNamespace(
        sent=[b"x"], kept=kept, quiet_since=1.0, ticket=SimpleNamespace(verdict=verdict), connection=SimpleNamespace(address=ADDRESS)
    )


async def test_requests_of_many_answers_are_read_in_turns_of_their_own() -> None:
    entry = SimpleNamespace(id="i0", state=InstanceState.DRAINING)
    routing = routing_table([ADDRESS]).routing
    pool = SimpleNamespace(
        key="default/chat",
        table=SimpleNamespace(instances=[entry], routing=routing),
        addresses={"i0": ADDRESS},
        account=SimpleNamespace(can_carry_on=lambda *_: True),
    )
    looked, calls = Looked(), [begun_call() for _ in range(5)]
    pools: Any = SimpleNamespace(all=lambda: [pool])
    carrying: Any = looked
    under_way: Any = SimpleNamespace(under_way=lambda: tuple(calls))
    now = [0.0]
    overs = HandOvers(pools, under_way, carrying, lambda: now[0])
    await overs.look()
    now[0] += routing.hand_over_after_seconds + 1
    counting = asyncio.create_task(looked.count())
    await overs.look()
    counting.cancel()
    assert looked.asked == sorted(set(looked.asked))
    assert len(looked.asked) == 5
