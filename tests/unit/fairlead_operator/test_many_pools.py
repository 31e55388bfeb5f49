"""300 pools and a control API of limited capacity, in virtual time: the operator must not keep the API overloaded."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import httpx
import msgspec

from fairlead.pool_states import PoolObservations, PoolState
from fairlead.tables import PoolKey
from fairlead_client.internal import SystemApi
from fairlead_operator.backoff import ServerBackoff
from fairlead_operator.control_plane import PacedControlPlane
from fairlead_operator.pool_worker import PoolWorker, Turns
from fairlead_operator.reconciling.state_exchange import StateExchange
from fairlead_operator.settings import ControlPlaneSettings, Pace
from fairlead_testing.worlds.virtual_time import run_virtually, virtual_now

POOLS = 300
STATE = PoolState(uid="u", generation=1, resource_version="1", spec={}, changed_by="kubectl", instances=())
OBSERVATIONS = msgspec.json.encode(
    PoolObservations(table_version=1, table_acknowledged=True, live_routers=1, ttft_attainment=None, requests_per_second=0.0, instances=())
)


@dataclass(slots=True)
class SmallApi:
    """An API that computes 6 answers at once, `seconds` each.

    A caller that has waited a second for a place gets a 503, as from the control API.
    """

    seconds: float
    busy_every: float = 0.0
    """Virtual seconds between calls that get a 503 even if there are free places; 0 = never."""
    busy_at: float = 0.0
    asked: list[float] = field(default_factory=list)
    refused: int = 0
    under_way: int = 0
    most_under_way: int = 0
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(6))

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(virtual_now())
        if self.busy_every and virtual_now() - self.busy_at >= self.busy_every:
            self.busy_at = virtual_now()
            self.refused += 1
            return httpx.Response(503, headers={"Retry-After": "1"})
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            async with asyncio.timeout(3):  # the client's
                try:
                    async with asyncio.timeout(1):
                        await self.places.acquire()
                except TimeoutError:
                    self.refused += 1
                    return httpx.Response(503, headers={"Retry-After": "1"})
                try:
                    await asyncio.sleep(self.seconds)
                finally:
                    self.places.release()
                return httpx.Response(200, content=OBSERVATIONS)
        except TimeoutError as error:
            self.refused += 1
            raise httpx.ReadTimeout("late") from error
        finally:
            self.under_way -= 1


@dataclass(slots=True)
class Settled:
    """The reconciler of a pool that only sends its state. `shown` counts the messages of its condition."""

    exchange: StateExchange
    shown: Counter[bool]
    pace: Pace

    async def reconcile(self) -> float:
        answer = await self.exchange.exchange(STATE)
        self.shown[answer.problem is None] += 1
        return answer.retry_in if answer.trusted is None else self.pace.settled

    async def finalize(self) -> float | None:
        raise AssertionError("no pool is deleted")

    async def report_deletion(self) -> float | None:
        raise AssertionError("no pool is deleted")

    def changed(self) -> None:
        raise AssertionError("nothing changes")

    def children_changed(self) -> None:
        raise AssertionError("no child changes")


@dataclass(slots=True)
class Fleet:
    """All pools of one operator, with one API."""

    api: SmallApi
    shown: Counter[bool] = field(default_factory=Counter)
    pace: Pace = field(default_factory=Pace)

    async def run(self, seconds: float) -> None:
        chance = random.Random(7).random
        settings = ControlPlaneSettings(urls=("http://api",), token="t")
        api = SystemApi(settings.urls, settings.token, transport=httpx.MockTransport(self.api.handle))
        backoff = ServerBackoff(self.pace.longest_pause, virtual_now, chance)
        control_plane = PacedControlPlane(api, backoff, settings.calls_at_once)

        def reconciler(key: PoolKey) -> Settled:
            return Settled(StateExchange(key, control_plane, self.pace, virtual_now), self.shown, self.pace)

        turns = Turns(pace=self.pace, places=asyncio.Semaphore(self.pace.reconciles_at_once), chance=chance)
        keys = [PoolKey(namespace="ns", name=f"p{number}") for number in range(POOLS)]
        daemons = [asyncio.create_task(PoolWorker(reconciler(key), str(key), turns).run()) for key in keys]
        await asyncio.sleep(seconds)
        for daemon in daemons:
            daemon.cancel()
        await asyncio.gather(*daemons, return_exceptions=True)


def busiest_second(times: list[float]) -> int:
    return max(Counter(int(at) for at in times).values())


def test_a_start_with_many_pools_asks_for_few_at_a_time_and_none_is_refused() -> None:
    async def story() -> tuple[SmallApi, Fleet]:
        fleet = Fleet(SmallApi(seconds=0.1))
        await fleet.run(60)
        return fleet.api, fleet

    api, fleet = run_virtually(story())
    assert api.most_under_way == 4
    assert api.refused == 0
    assert set(fleet.shown) == {True}
    assert len(api.asked) > POOLS * 4, "and every pool is told every 10 s all the same"


def test_settled_pools_spread_over_time() -> None:
    async def story() -> SmallApi:
        fleet = Fleet(SmallApi(seconds=0.005))
        await fleet.run(300)
        return fleet.api

    api = run_virtually(story())
    assert busiest_second([at for at in api.asked if at > 200]) < POOLS / 4, "they all began in the same second"


def test_an_api_that_is_down_is_asked_a_few_times_a_minute_by_all_pools_together() -> None:
    async def story() -> tuple[SmallApi, Fleet]:
        fleet = Fleet(SmallApi(seconds=3600.0))
        await fleet.run(600)
        return fleet.api, fleet

    api, fleet = run_virtually(story())
    assert len([at for at in api.asked if at > 60]) < 540 / 20 * 4, "it was 300 a second"
    assert fleet.shown[False] > 0, "a real outage is shown"


def test_an_api_that_comes_back_is_told_of_all_pools_within_a_minute() -> None:
    async def story() -> list[float]:
        api = SmallApi(seconds=3600.0)
        fleet = Fleet(api)
        running = asyncio.create_task(fleet.run(200))
        await asyncio.sleep(120)
        api.seconds, api.places = 0.05, asyncio.Semaphore(6)
        back = len(api.asked)
        await running
        return api.asked[back:]

    asked = run_virtually(story())
    assert asked[POOLS] - 120 < 60


def test_one_slow_second_of_the_api_shows_no_pool_as_cut_off() -> None:
    async def story() -> Fleet:
        api = SmallApi(seconds=0.02)
        fleet = Fleet(api)
        running = asyncio.create_task(fleet.run(90))
        await asyncio.sleep(30)
        api.seconds = 4.0
        await asyncio.sleep(1)
        api.seconds = 0.02
        await running
        return fleet

    fleet = run_virtually(story())
    assert fleet.api.refused > 0, "some were late"
    assert fleet.shown[False] == 0


def test_an_api_that_is_busy_now_and_then_shows_no_pool_as_cut_off() -> None:
    async def story() -> Fleet:
        fleet = Fleet(SmallApi(seconds=0.02, busy_every=6.0))
        await fleet.run(300)
        return fleet

    fleet = run_virtually(story())
    assert fleet.api.refused > 30
    assert fleet.shown[False] == 0
