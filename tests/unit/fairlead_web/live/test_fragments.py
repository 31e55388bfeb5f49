"""One rendering for many viewers: who shares it, who does not, and to whom a failure is reported."""

import asyncio

import pytest
from starlette.responses import Response

from fairlead_web.live.fragments import Fragments


class Kitchen:
    """Makes numbered answers and counts them; `fail` makes the next one raise."""

    def __init__(self) -> None:
        self.made = 0
        self.fail = False
        self.status = 200
        self.go = asyncio.Event()
        self.go.set()

    async def make(self) -> Response:
        self.made += 1
        number = self.made
        await self.go.wait()
        if self.fail:
            self.fail = False
            raise RuntimeError("no")
        return Response(f"answer {number}", self.status, {"x-number": str(number)})


async def test_those_who_ask_together_share_and_later_ones_get_a_new_answer() -> None:
    now, kitchen = [0.0], Kitchen()
    fragments = Fragments(lambda: now[0])
    found = await asyncio.gather(*(fragments.get("a", kitchen.make) for _ in range(5)))
    assert {bytes(answer.body) for answer in found} == {b"answer 1"}
    assert found[0].headers["x-number"] == "1"
    assert len({id(answer) for answer in found}) == 5, "middleware changes what it sends, so nobody may share the object"
    now[0] = 1.5
    assert bytes((await fragments.get("a", kitchen.make)).body) == b"answer 2"
    assert bytes((await fragments.get("b", kitchen.make)).body) == b"answer 3"
    assert bytes((await fragments.get("a", kitchen.make, 5.0)).body) == b"answer 2"
    now[0] = 6.4
    assert bytes((await fragments.get("a", kitchen.make, 5.0)).body) == b"answer 2"
    now[0] = 6.5
    assert bytes((await fragments.get("a", kitchen.make, 5.0)).body) == b"answer 4"


async def test_a_failure_belongs_to_whoever_met_it() -> None:
    kitchen = Kitchen()
    fragments = Fragments()
    kitchen.fail = True
    kitchen.go.clear()
    first = asyncio.ensure_future(fragments.get("a", kitchen.make))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(fragments.get("a", kitchen.make))
    await asyncio.sleep(0)
    kitchen.go.set()
    with pytest.raises(RuntimeError):
        await first
    assert bytes((await second).body) == b"answer 2"


async def test_an_answer_that_is_an_error_is_not_shared() -> None:
    kitchen = Kitchen()
    kitchen.status = 503
    fragments = Fragments()
    assert (await fragments.get("a", kitchen.make)).status_code == 503
    kitchen.status = 200
    assert (await fragments.get("a", kitchen.make)).status_code == 200


async def test_an_asker_who_leaves_does_not_take_the_others_answer_along() -> None:
    kitchen = Kitchen()
    fragments = Fragments()
    kitchen.go.clear()
    first = asyncio.ensure_future(fragments.get("a", kitchen.make))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(fragments.get("a", kitchen.make))
    await asyncio.sleep(0)
    first.cancel()
    kitchen.go.set()
    assert bytes((await second).body) == b"answer 1"
