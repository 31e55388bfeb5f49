"""Figures that may be a little old: which callers wait for new ones, and how long old ones are served."""

import asyncio

import pytest

from fairlead_api.infra.errors import StoreUnavailable
from fairlead_api.infra.sharing import Recent
from fairlead_testing.waiting import PATIENCE_SECONDS


class Figures:
    """A source that counts its queries, and answers with the count when a test lets it."""

    def __init__(self) -> None:
        self.asked = 0
        self.now = 100.0
        self.is_away = False
        self.takes = 0.0
        self.ready = asyncio.Event()
        self.ready.set()
        self.recent = Recent(2.0, 10.0, lambda: self.now)

    async def make(self) -> int:
        self.asked += 1
        count = self.asked
        self.now += self.takes
        await self.ready.wait()
        if self.is_away:
            raise StoreUnavailable("away")
        return count

    async def get(self) -> int:
        return await self.recent.get("key", self.make)


async def test_fresh_figures_are_not_computed_again() -> None:
    figures = Figures()
    assert [await figures.get(), await figures.get()] == [1, 1]
    assert figures.asked == 1


async def test_nobody_waits_while_figures_are_computed_again() -> None:
    figures = Figures()
    await figures.get()
    figures.now += 3
    figures.ready.clear()
    assert [await figures.get(), await figures.get()] == [1, 1]
    while figures.asked < 2:
        await asyncio.sleep(0)
    figures.ready.set()
    while await figures.get() != 2:
        await asyncio.sleep(0)


async def test_a_figure_that_takes_long_is_computed_a_tenth_of_the_time_at_most() -> None:
    figures = Figures()
    figures.takes = 0.5
    await figures.get()
    figures.takes = 0.0
    figures.now += 4.4
    assert (await figures.get(), figures.asked) == (1, 1), "4.9 s after it was asked for"
    figures.now += 0.2
    assert await figures.get() == 1
    while figures.asked < 2:
        await asyncio.sleep(0)


async def test_nobody_waits_for_a_figure_that_takes_so_long_that_it_would_rest_until_it_is_too_old() -> None:
    figures = Figures()
    figures.takes = 2.0
    await figures.get()
    figures.takes = 0.0
    figures.now += 3.1
    assert await figures.get() == 1
    while figures.asked < 2:
        await asyncio.sleep(0)


async def test_what_is_too_old_is_waited_for() -> None:
    figures = Figures()
    await figures.get()
    figures.now += 10
    assert await figures.get() == 2


async def test_a_failure_in_the_background_leaves_the_old_figures_until_they_are_too_old() -> None:
    figures = Figures()
    await figures.get()
    figures.is_away = True
    figures.now += 3
    assert await figures.get() == 1
    while figures.asked < 2:
        await asyncio.sleep(0)
    assert await figures.get() == 1
    figures.now += 10
    with pytest.raises(StoreUnavailable):
        await figures.get()


async def test_closing_ends_what_is_under_way() -> None:
    figures = Figures()
    await figures.get()
    figures.now += 3
    figures.ready.clear()
    await figures.get()
    await asyncio.wait_for(figures.recent.close(), PATIENCE_SECONDS)


async def test_without_sharing_everybody_gets_their_own() -> None:
    figures = Figures()
    figures.recent = Recent(0.0, 0.0, lambda: figures.now)
    assert [await figures.get(), await figures.get()] == [1, 2]
