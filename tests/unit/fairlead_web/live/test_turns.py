"""Opening a page takes precedence over updates of open pages, and delays them only for a moment."""

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest

from fairlead_testing import waiting
from fairlead_web.live import turns as module
from fairlead_web.live.turns import AT_ONCE, PATIENCE_SECONDS, Turns


class Work:
    """Pieces of work that last until `end` is set, and the number that runs."""

    def __init__(self) -> None:
        self.begun = 0
        self.under_way = 0
        self.most = 0
        self.end = asyncio.Event()

    async def do(self, turn: AbstractAsyncContextManager[None]) -> None:
        async with turn:
            self.begun += 1
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            await self.end.wait()
            self.under_way -= 1


async def settle() -> None:
    """Let all tasks run that wait for no time to pass."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_comes_after_begins_once_nobody_waits_for_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", waiting.PATIENCE_SECONDS)
    turns, pages, parts = Turns(), Work(), Work()
    async with asyncio.TaskGroup() as people:
        for _ in range(3):
            people.create_task(pages.do(turns.first()))
        await settle()
        assert pages.under_way == 3, "they wait for nobody"
        part = asyncio.create_task(parts.do(turns.after()))
        await settle()
        assert parts.begun == 0
        pages.end.set()
    await settle()
    assert parts.begun == 1
    parts.end.set()
    await part


async def test_only_a_few_that_come_after_are_under_way_at_once() -> None:
    turns, parts = Turns(), Work()
    parts.end.set()
    await asyncio.gather(*(parts.do(turns.after()) for _ in range(10)))
    assert (parts.begun, parts.most) == (10, 1)
    parts.end.clear()
    waiting = [asyncio.create_task(parts.do(turns.after())) for _ in range(10)]
    await settle()
    assert parts.under_way == AT_ONCE
    parts.end.set()
    await asyncio.gather(*waiting)
    assert (parts.begun, parts.most) == (20, AT_ONCE)


async def test_pages_that_are_opened_all_the_time_hold_up_the_others_for_a_moment_only() -> None:
    turns, pages, parts = Turns(), Work(), Work()
    page = asyncio.create_task(pages.do(turns.first()))
    await asyncio.sleep(0)
    parts.end.set()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await parts.do(turns.after())
    assert loop.time() - begun >= PATIENCE_SECONDS * 0.99
    assert parts.begun == 1
    pages.end.set()
    await page


async def test_work_that_fails_or_is_cancelled_gives_its_turn_back() -> None:
    turns, pages, parts = Turns(), Work(), Work()
    one = asyncio.create_task(pages.do(turns.first()))
    others = [asyncio.create_task(parts.do(turns.after())) for _ in range(AT_ONCE)]
    await asyncio.sleep(0)
    one.cancel()
    await settle()
    assert parts.under_way == AT_ONCE
    for each in others:
        each.cancel()
    await asyncio.gather(one, *others, return_exceptions=True)
    more = Work()
    more.end.set()
    await more.do(turns.after())
    assert more.begun == 1
