"""Canaries in Postgres: a step begins with its first session, its requests are judged, and the operator is notified."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from fairlead.pool_states import CanaryVerdict, PoolState
from fairlead.reports.canaries import CanarySample
from fairlead.tables import CanaryFacts
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_report, a_state, an_instance

ROLLING: dict[str, Any] = {**SPEC, "rollout": {"canary": {"steps": [{"share": 50}], "warmCaches": "0s"}}}


def rolling(share: float = 0.5, step: str = "k/0") -> PoolState:
    state = a_state(an_instance("a"), an_instance("b"), spec=ROLLING)
    return replace(state, canary=CanaryFacts(step=step, share=share, instances=("b",)))


def samples(at: float, slower: float, count: int = 150, first: int = 0, step: str = "k/0") -> Iterator[CanarySample]:
    """Yield sessions of one request, every other one on the canary, a millisecond apart."""
    random = Random(1)
    for number in range(first, first + count):
        canary = number % 2 == 0
        yield CanarySample(
            pool=CHAT,
            at=at + number / 1000,
            step=step,
            session=f"{number}",
            canary=canary,
            prompt_tokens=1000,
            cached_tokens=500,
            ttft_seconds=random.lognormvariate(0.0, 0.1) * (slower if canary else 1.0),
            tpot_seconds=random.lognormvariate(-4.0, 0.1),
            output_tokens=100,
        )


async def look(api: ApiInstance) -> None:
    api.clock.skip(130)  # the last sessions have been idle for long, and a look is stored
    await api.app.state.judging.look(api.clock())


async def heard(api: ApiInstance, state: PoolState) -> CanaryVerdict | None:
    return (await api.pool_operator.put_pool_state(CHAT, state)).canary


async def report(api: ApiInstance, name: str, sent: tuple[CanarySample, ...]) -> None:
    await api.router.post_report(a_report(name, at=api.clock().timestamp(), canary_samples=sent))


async def test_a_slower_revision_is_sent_back_with_its_evidence(api: ApiInstance) -> None:
    assert await heard(api, rolling(0.0)) is None
    assert not (await api.viewer.canary(CHAT)).steps, "no session could go there yet"
    assert await heard(api, rolling()) is None
    api.clock.skip(1)
    now = api.clock().timestamp()
    api.clock.skip(5)
    await report(api, "1", tuple(samples(now, 1.5)))
    await look(api)
    told = await heard(api, rolling())
    assert told is not None
    assert (told.step, told.verdict) == ("k/0", "back")
    assert "time to first token" in told.reason
    (step,) = (await api.viewer.canary(CHAT)).steps
    assert (step.share, step.ended_at) == (0.5, None)
    newest = step.looks[0]
    assert newest.verdict == "back"
    ttft = next(one for one in newest.estimates if one.metric == "ttft")
    assert ttft.low is not None
    assert ttft.low > 0.02
    assert (await api.router.tables())[CHAT].canary == rolling().canary


async def test_sessions_of_before_do_not_count_and_another_step_is_judged_by_its_own(api: ApiInstance) -> None:
    await heard(api, rolling(0.0))
    earlier = tuple(replace(one, canary=False) for one in samples(api.clock().timestamp(), 1.0))
    api.clock.skip(5)
    await report(api, "1", earlier)
    await heard(api, rolling())
    api.clock.skip(1)
    now = api.clock().timestamp()
    api.clock.skip(5)
    await report(api, "2", tuple(samples(now, 3.0)))
    await look(api)
    told = await heard(api, rolling())
    assert told is not None
    assert (told.verdict, told.reason) == ("wait", "no pair of sessions yet")
    assert await heard(api, rolling(step="k/1")) is None
    steps = (await api.viewer.canary(CHAT)).steps
    assert [(one.step, one.ended_at is None) for one in steps] == [("k/1", True), ("k/0", False)]


async def test_another_process_comes_to_the_same_verdict(api: ApiInstance, start_api: Any) -> None:
    await heard(api, rolling())
    api.clock.skip(1)
    now = api.clock().timestamp()
    api.clock.skip(5)
    await report(api, "1", tuple(samples(now, 1.5)))
    other = await start_api()
    other.clock.skip(api.clock.skipped.total_seconds() + 300)
    await other.app.state.judging.look(other.clock())
    told = await heard(api, rolling())
    assert told is not None
    assert told.verdict == "back"


async def test_requests_that_are_reported_after_later_ones_were_judged_are_said_to_be_late(api: ApiInstance, start_api: Any) -> None:
    await heard(api, rolling())
    api.clock.skip(1)
    now = api.clock().timestamp()
    api.clock.skip(5)
    await report(api, "1", tuple(samples(now + 1, 1.0)))
    await look(api)
    await report(api, "2", tuple(samples(now, 1.0, count=40, first=500)))
    await look(api)
    newest = (await api.viewer.canary(CHAT)).steps[0].looks[0]
    assert (newest.requests, newest.late_requests) == (150, 40)
    other = await start_api()
    other.clock.skip(api.clock.skipped.total_seconds() + 300)
    await other.app.state.judging.look(other.clock())
    newest = (await api.viewer.canary(CHAT)).steps[0].looks[0]
    assert (newest.requests, newest.late_requests) == (190, 0), "a new process reads all from the beginning"
