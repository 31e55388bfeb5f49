"""A call's refusals are weighed against each other, with engines that the test plays."""

from typing import Any, cast

import orjson
import pytest

from fairlead_router.engines.upstream_connections import UpstreamConnection
from fairlead_router.pools import instance_choice
from fairlead_router.pools.instance_choice import OpinionBudget
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.served_names import ServedNames
from fairlead_router.pools.tickets import Ticket
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.relaying.calls import Call
from fairlead_router.relaying.second_opinions import Doubt


class Refusal:
    """A connection with a refusal."""

    complete = True

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.pieces = [orjson.dumps({"error": {"message": message, "code": status}})]

    async def read(self) -> bytes:
        return self.pieces.pop() if self.pieces else b""

    def unread(self, piece: bytes) -> None:
        self.pieces.append(piece)


class Played:
    """A pool whose scheduler always finds another instance, or finds none any more."""

    def __init__(self) -> None:
        self.choice = self.account = self
        self.names = ServedNames()
        self.opinions = OpinionBudget()
        self.opinions.take(0.0)
        self.has_others = True

    def only_doubted(self, name: str, now: float) -> tuple[str, ...]:
        return ()

    def second_opinion(self, *about: Any, **how: Any) -> object | None:
        return object() if self.has_others else None

    def doubt(self) -> Doubt:
        call = Call("r-1", 0.0, b"", b"", stream=False, dialect=Dialect.OPENAI, deadline=9.0)
        call.model = "m"
        return Doubt(call, cast(Pool, self), cast(Ticket, None))


async def refuse(doubt: Doubt, instance: str, status: int, message: str) -> bool:
    connection = cast(UpstreamConnection, Refusal(status, message))
    return await doubt.ask_elsewhere(instance, connection, b"", 0.0) is not None


LACKS = "The model `m` does not exist."


@pytest.mark.parametrize("refusals", [["too long"], ["too long", "too long"], ["too long", LACKS], [LACKS, "too long"], [LACKS]])
async def test_one_that_contradicts_gives_back_exactly_what_was_taken(refusals: list[str]) -> None:
    pool = Played()
    doubt, before = pool.doubt(), pool.opinions.left
    for number, message in enumerate(refusals):
        assert await refuse(doubt, f"i{number}", 404 if message is LACKS else 400, message)
    assert before - pool.opinions.left == (0.0 if set(refusals) == {LACKS} else 1.0)
    for _ in range(3):
        doubt.contradicted(1.0)
        assert pool.opinions.left == before
    assert list(pool.names.lacking("m", 1.0)) == [f"i{number}" for number, message in enumerate(refusals) if message is LACKS]


async def test_what_nobody_else_can_be_asked_costs_no_opinion() -> None:
    pool = Played()
    pool.has_others = False
    before = pool.opinions.left
    assert not await refuse(pool.doubt(), "i0", 400, "too long")
    assert pool.opinions.left == before


async def test_the_budget_never_holds_more_than_it_may() -> None:
    budget = OpinionBudget()
    for _ in range(9):
        budget.give_back()
    assert budget.left == instance_choice.OPINIONS_AT_ONCE


async def test_a_refusal_that_stands_is_the_last_that_is_not_of_the_name() -> None:
    doubt = Played().doubt()
    assert await refuse(doubt, "i0", 404, LACKS)
    assert (doubt.last, doubt.is_of_name) == (None, True)
    assert await refuse(doubt, "i1", 400, "too long")
    assert await refuse(doubt, "i2", 404, LACKS)
    assert doubt.last is not None
    assert doubt.last.instance == "i1"
