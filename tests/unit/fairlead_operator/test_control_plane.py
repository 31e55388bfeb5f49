"""The pauses between the operator's calls of the control API."""

import asyncio
from collections.abc import Sequence

import pytest

from fairlead.pool_states import HeldPools, PoolEvent, PoolObservations, PoolState, UnheardPools
from fairlead.tables import PoolKey
from fairlead_client.outcomes import Cause, Later, Outcome, Refused, Taken
from fairlead_operator.backoff import ServerBackoff
from fairlead_operator.control_plane import PacedControlPlane

KEY = PoolKey(namespace="ns", name="chat")
OTHER = PoolKey(namespace="ns", name="other")


class Scripted:
    """A ControlPlane that returns one outcome after the other, and Taken when there are none left.

    It counts the calls in progress.
    """

    def __init__(self, *outcomes: Refused | Later) -> None:
        self.outcomes = list(outcomes)
        self.asked: list[PoolKey] = []
        self.under_way = self.most_under_way = 0

    async def put_state(self, pool: PoolKey, state: PoolState) -> Outcome[PoolObservations]:
        raise AssertionError("not asked here")

    async def post_events(self, pool: PoolKey, events: Sequence[PoolEvent]) -> Outcome[None]:
        raise AssertionError("not asked here")

    async def held_pools(self) -> Outcome[HeldPools]:
        raise AssertionError("not asked here")

    async def unheard_pools(self, seconds: float) -> Outcome[UnheardPools]:
        raise AssertionError("not asked here")

    async def delete_pool(self, pool: PoolKey) -> Outcome[None]:
        self.asked.append(pool)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        return self.outcomes.pop(0) if self.outcomes else Taken(None)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def paced(api: Scripted, clock: Clock) -> PacedControlPlane:
    return PacedControlPlane(api, ServerBackoff(30.0, clock, lambda: 0.5), calls_at_once=2)


async def test_after_an_outage_no_pool_asks_until_the_time_the_api_named() -> None:
    clock = Clock()
    api = Scripted(Later(cause=Cause.UNAVAILABLE, problem="503 database away", retry_after_seconds=7.0))
    control_plane = paced(api, clock)
    assert await control_plane.delete_pool(KEY) == Later(cause=Cause.UNAVAILABLE, problem="503 database away", retry_after_seconds=7.0)
    clock.now += 6.5
    unasked = await control_plane.delete_pool(OTHER)
    assert isinstance(unasked, Later)
    assert (unasked.retry_after_seconds, unasked.problem) == (0.5, "503 database away; asked again in 0 s")
    assert api.asked == [KEY]
    clock.now += 0.5
    assert await control_plane.delete_pool(OTHER) == Taken(None)


@pytest.mark.parametrize("cause", [Cause.UNREACHABLE, Cause.TIMED_OUT, Cause.FAULT, Cause.UNAVAILABLE])
async def test_backoff_grow_while_the_api_is_away(cause: Cause) -> None:
    clock = Clock()
    away = Later(cause=cause, problem="away")
    control_plane = paced(Scripted(away, away, away), clock)
    pauses = []
    for _ in range(3):
        outcome = await control_plane.delete_pool(KEY)
        assert isinstance(outcome, Later)
        assert outcome.retry_after_seconds is not None
        pauses.append(outcome.retry_after_seconds)
        clock.now += outcome.retry_after_seconds
    assert pauses == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    "outcome", [Refused(problem="422"), Later(cause=Cause.DECLINED, problem="409"), Later(cause=Cause.UNREADABLE, problem="?")]
)
async def test_an_answer_that_concerns_one_pool_makes_no_other_wait(outcome: Refused | Later) -> None:
    api = Scripted(outcome)
    control_plane = paced(api, Clock())
    assert await control_plane.delete_pool(KEY) == outcome
    assert await control_plane.delete_pool(OTHER) == Taken(None)


async def test_no_more_calls_are_under_way_than_the_api_has_places_for() -> None:
    api = Scripted()
    control_plane = paced(api, Clock())
    await asyncio.gather(*(control_plane.delete_pool(KEY) for _ in range(9)))
    assert (len(api.asked), api.most_under_way) == (9, 2)
