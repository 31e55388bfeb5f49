"""Direct requests wait for the first instance: their number is bounded, and all are released at once."""

import asyncio
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.loads import HeldDemand
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import HoldingFacts, Outlook, RoutingTable
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.waiting_room import MOST_BYTES, WaitingRoom
from fairlead_testing.builders.routing_tables import routing_table

LONGER_THAN_A_TEST = 86_400.0
"""Seconds beyond a test's time limit, so that a wait which is never ended fails the test."""

EMPTY = replace(routing_table([]), outlook=Outlook.COMING, holding=HoldingFacts(hold_for_seconds=LONGER_THAN_A_TEST, held_requests=2))
SERVING = replace(routing_table(["127.0.0.1:1"], version=2), outlook=Outlook.UNKNOWN)


def pool_of(table: RoutingTable) -> Pool:
    return Pool(table, PoolScheduler(table, "router", 0), RouterMetrics(), 0.0)


async def test_direct_requests_wait_until_the_first_instance_serves() -> None:
    pool = pool_of(EMPTY)
    waiting = [asyncio.create_task(pool.account.wait_for_instance(10, 0.0)) for _ in range(2)]
    await asyncio.sleep(0)
    assert pool.account.use(5.0).held_requests == 2
    assert pool.account.use(5.0).idle_seconds == 0.0
    pool.update(SERVING, 6.0)
    await asyncio.gather(*waiting)
    assert pool.choice.least_loaded((), 6.0) == "i0"
    assert pool.account.held().requests == 0


async def test_one_more_than_the_spec_allows_does_not_wait() -> None:
    pool = pool_of(EMPTY)
    waiting = [asyncio.create_task(pool.account.wait_for_instance(10, 0.0)) for _ in range(2)]
    await asyncio.sleep(0)
    await pool.account.wait_for_instance(10, 0.0)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert pool.account.held().requests == 0


async def test_a_direct_request_does_not_wait_for_a_pool_that_is_closed_or_lost_its_instances() -> None:
    for outlook in (Outlook.CLOSED, Outlook.UNKNOWN):
        await pool_of(replace(EMPTY, outlook=outlook)).account.wait_for_instance(10, 0.0)


async def test_waiting_ends_when_the_pool_is_closed_or_the_router_stops() -> None:
    pool = pool_of(EMPTY)
    waiting = asyncio.create_task(pool.account.wait_for_instance(10, 0.0))
    await asyncio.sleep(0)
    pool.update(replace(EMPTY, version=2, outlook=Outlook.CLOSED), 1.0)
    await waiting
    pool = pool_of(EMPTY)
    waiting = asyncio.create_task(pool.account.wait_for_instance(10, 0.0))
    await asyncio.sleep(0)
    pool.account.shut_down(1.0)
    await waiting


async def test_waiting_ends_after_its_time() -> None:
    room = WaitingRoom(HeldDemand)
    await room.wait(10, 0.01)
    assert len(room) == 0


def test_bodies_that_wait_are_bounded_in_bytes() -> None:
    assert WaitingRoom(HeldDemand).has_room(MOST_BYTES)
    assert not WaitingRoom(HeldDemand).has_room(MOST_BYTES + 1)
    assert not WaitingRoom(lambda: HeldDemand(requests=1, body_bytes=10)).has_room(MOST_BYTES - 9)


COMING = st.lists(st.tuples(st.sampled_from(["direct", "routed", "left"]), st.sampled_from([1, MOST_BYTES // 3, MOST_BYTES])), max_size=20)


@given(COMING, st.integers(1, 5))
def test_one_bound_is_for_all_that_is_held_whichever_way_it_came(coming: list[tuple[str, int]], most: int) -> None:
    async def play() -> None:
        table = replace(EMPTY, holding=HoldingFacts(hold_for_seconds=LONGER_THAN_A_TEST, held_requests=most))
        pool = pool_of(table)
        direct: list[tuple[asyncio.Task[None], int]] = []
        for number, (way, size) in enumerate(coming):
            if way == "direct":
                direct.append((asyncio.create_task(pool.account.wait_for_instance(size, 0.0)), size))
            elif way == "routed":
                request = RoutingRequest(id=str(number), arrived_at=1.0, prompt_tokens=1, blocks=(), first_bytes_hash=0, body_bytes=size)
                before = pool.scheduler.held().requests
                ticket = pool.account.submit(request, 1.0)
                assert (ticket.verdict is None) == (pool.scheduler.held().requests == before + 1)
            elif direct:
                direct[0][0].cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            waiting = [size for task, size in direct if not task.done()]
            held = pool.scheduler.held()
            assert len(waiting) + held.requests == pool.account.held().requests <= most
            assert sum(waiting) + held.body_bytes <= MOST_BYTES
            direct = [(task, size) for task, size in direct if not task.done()]
        pool.account.shut_down(2.0)
        await asyncio.gather(*(task for task, _ in direct), return_exceptions=True)
        assert pool.account.held().requests == 0

    asyncio.run(play())


def test_a_pool_is_idle_since_its_last_request_and_not_before_the_router_began() -> None:
    pool = Pool(SERVING, PoolScheduler(SERVING, "router", 0), RouterMetrics(), 100.0)
    assert pool.account.use(130.0).idle_seconds == 30.0
    pool.account.begin_direct("i0", 140.0)
    pool.tick(150.0)
    assert pool.account.use(160.0).idle_seconds == 0.0
    assert [(row.instance, row.in_flight) for row in pool.account.in_flight()] == [("i0", 1)]
    pool.account.end_direct("i0")
    assert pool.account.use(160.0).idle_seconds == 10.0
