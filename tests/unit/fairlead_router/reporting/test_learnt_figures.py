"""Figures of engines that a router has measured and reports to the control API."""

import pytest

from fairlead.reports.engines import KnownCache, LearntFigure, Quantity
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_router.kv_events.instances import EventReading
from fairlead_router.kv_events.metrics import Belief
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.pool import Pool
from fairlead_router.protocols.answers import Usage
from fairlead_router.reporting.learnt_figures import known_caches, learnt_figures
from fairlead_testing.builders.routing import POOL
from fairlead_testing.builders.routing_tables import CHAT, routing_table

TABLE = routing_table(["127.0.0.1:1", "127.0.0.1:2"], prefill_tokens_per_second=5_000)


def a_pool() -> Pool:
    return Pool(TABLE, PoolScheduler(TABLE, "router-0", 1), RouterMetrics(), 0.0)


def serve(pool: Pool, name: str, began: float, prefill_seconds: float) -> float:
    """Serve a streamed request of 1000 tokens of 3 bytes, answered with 41 tokens in 2 s; return when it has ended."""
    request = RoutingRequest(
        id=name, arrived_at=began, prompt_tokens=1_000, blocks=(), first_bytes_hash=0, prompt_bytes=3_000, streamed=True
    )
    ticket = pool.account.submit(request, began)
    pool.account.first_token(ticket, began + prefill_seconds)
    pool.account.complete(ticket, began + prefill_seconds + 2.0, Usage(41, None, 1_000))
    return began + prefill_seconds + 2.0


def told(pool: Pool, now: float = 0.0) -> dict[tuple[str | None, str], LearntFigure]:
    return {(one.instance, one.quantity): one for one in learnt_figures(pool, now)}


def test_nothing_is_told_before_anything_is_learnt() -> None:
    assert told(a_pool()) == {}


def test_what_all_instances_and_each_one_taught_is_told_with_its_error() -> None:
    """Instances take turns, i1 first: i0 prefills as fast as declared, the other half as fast."""
    pool, now = a_pool(), 1.0
    for number in range(10):
        now = serve(pool, str(number), now, 0.2 if number % 2 else 0.4)
    found = told(pool, now)
    assert {one.pool for one in found.values()} == {CHAT}
    assert {(instance, quantity) for instance, quantity in found} == {
        (None, Quantity.TEXT),
        *((instance, quantity) for instance in (None, "i0", "i1") for quantity in (Quantity.PREFILL, Quantity.DECODE)),
    }
    assert found[None, Quantity.PREFILL].value == pytest.approx(9_000 / 2.8), "tokens over seconds, found again now and then"
    assert found[None, Quantity.PREFILL].age_seconds == pytest.approx(2.0)
    assert [found[one, Quantity.PREFILL].value for one in ("i0", "i1")] == [pytest.approx(5_000.0), pytest.approx(2_500.0)]
    assert found[None, Quantity.DECODE].value == pytest.approx(2.0 / 40)
    assert found[None, Quantity.TEXT].value is None, "twenty prompts make an estimate"
    text = found[None, Quantity.TEXT]
    assert text.learnt == pytest.approx(3.0)
    assert (text.declared, text.samples, text.in_use) == (4, 10, False)
    assert (text.error, text.declared_error) == (0.25, 0.25), "before 20 prompts the declared figure is in use"
    fast, slow, both = (found[instance, Quantity.PREFILL] for instance in ("i0", "i1", None))
    assert [one.learnt for one in (fast, slow)] == [pytest.approx(0.2 / 1_000), pytest.approx(0.4 / 1_000)]
    assert fast.learnt < both.learnt < slow.learnt
    assert [one.declared for one in (fast, slow, both)] == [1 / 5_000] * 3
    assert [one.samples for one in (fast, slow, both)] == [5, 5, 10]
    assert [one.declared_error for one in (fast, slow)] == [pytest.approx(0.0, abs=1e-9), pytest.approx(0.5)]
    assert fast.error is not None and fast.error > 0.3, "the mean of both is too long for the fast one"
    step = found["i0", Quantity.DECODE]
    assert [step.learnt, step.error] == [pytest.approx(0.05), pytest.approx(0.0, abs=1e-9)]
    assert (step.declared, step.declared_error) == (None, None)


def test_an_engine_that_was_replaced_is_learnt_anew_and_the_pool_keeps_what_it_knows() -> None:
    pool, now = a_pool(), 1.0
    for number in range(4):
        now = serve(pool, str(number), now, 0.2)
    pool.update(routing_table(["127.0.0.1:9", "127.0.0.1:2"], prefill_tokens_per_second=5_000, version=2), now)
    assert {instance for instance, _ in told(pool)} == {None, "i1"}
    assert told(pool)[None, Quantity.PREFILL].samples == 4


def test_a_figure_that_is_off_by_more_than_half_is_told_with_since_when_until_it_holds_no_more() -> None:
    """The declared speed is 5,000 tokens/s; engines prefill three times as fast, and later exactly as fast."""
    pool, now = a_pool(), 1.0
    for number in range(60):  # the first twenty teach the bytes of a token, with which times begin again
        now = serve(pool, str(number), now, 1_000 / 15_000)
    off = [{one.quantity: one for one in learnt_figures(pool, at) if one.instance is None} for at in (now, now + 200)]
    prefill = [one[Quantity.PREFILL] for one in off]
    assert [one.off_seconds for one in prefill] == [0.0, 200.0]
    assert prefill[0].predicted is not None
    assert 1 / 20_001 < prefill[0].predicted < 1 / 12_000, "the router goes by what it has measured"
    assert prefill[0].observed == pytest.approx(1 / 15_000)
    assert off[1][Quantity.TEXT].off_seconds == 0.0
    for number in range(1_000):
        now = serve(pool, f"later{number}", now, 0.2)
    assert {one.off_seconds for one in learnt_figures(pool, now + 400)} == {0.0}


def test_the_size_of_kv_caches_is_told_once_an_engine_says_it_also_where_it_is_as_declared() -> None:
    pool = a_pool()
    assert (None, Quantity.KV_CACHE) not in told(pool)
    pool.learn_cache_size("i0", TABLE.engine.kv_cache_tokens, 1.0)
    pool.learn_cache_size("i1", TABLE.engine.kv_cache_tokens // 2, 1.0)
    found = told(pool)[None, Quantity.KV_CACHE]
    assert (found.value, found.value_samples) == (TABLE.engine.kv_cache_tokens // 2, 2), "of the smallest"


def test_a_speed_that_whole_answers_alone_taught_is_told_as_measured() -> None:
    pool, now = a_pool(), 1.0
    for number in range(60):
        prompt, output = 500 + 400 * (number % 7), 2 + 30 * (number % 5)
        request = RoutingRequest(id=str(number), arrived_at=now, prompt_tokens=prompt, blocks=(), first_bytes_hash=number, streamed=False)
        ticket = pool.account.submit(request, now)
        now += prompt / 2_500 + (output - 1) * 0.02
        pool.account.complete(ticket, now, Usage(output, None, prompt))
    speed = told(pool, now)[None, Quantity.PREFILL]
    assert speed.value == pytest.approx(2_500.0, rel=0.1)
    assert speed.learnt == pytest.approx(1 / 2_500.0, rel=0.1)
    assert speed.in_use
    assert speed.value_samples


def rank(number: int, state: str, *, blocks: int = 0, lag: float | None = None, gaps: int = 0) -> EventReading:
    return EventReading(
        rank=number,
        state=state,
        events=9,
        lag_seconds=lag,
        blocks=blocks,
        gaps=gaps,
        replays=gaps,
        restarts=0,
        batches_lost=0,
        unreadable=0,
    )


def belief(*pairs: tuple[int, int]) -> Belief:
    found = Belief()
    for predicted, reported in pairs:
        found.compare(predicted, reported)
    return found


def known(ranks: list[EventReading], **beliefs: Belief) -> list[KnownCache]:
    by_basis = {("a", basis): one for basis, one in beliefs.items()}
    return list(known_caches(POOL, ["a", "b"], {(str(POOL), "a"): ranks} if ranks else {}, by_basis))


def test_an_instance_is_as_well_heard_as_its_least_heard_rank() -> None:
    (one,) = known([rank(0, "current", blocks=5, lag=0.2), rank(1, "replaying", blocks=7, lag=0.1, gaps=2)])
    assert (one.instance, one.state, one.blocks, one.lag_seconds, one.gaps) == ("a", "replaying", 12, 0.2, 2)
    (one,) = known([rank(0, "disconnected"), rank(1, "waiting")])
    assert (one.state, one.lag_seconds) == ("disconnected", None)


def test_beliefs_add_up_whatever_they_came_from() -> None:
    (one,) = known([rank(0, "current")], events=belief((16, 16), (32, 48)), history=belief((0, 16)))
    assert (one.answered, one.exact, one.believed_tokens, one.cached_tokens, one.wrong_tokens) == (3, 1, 48, 80, 32)


def test_an_instance_that_publishes_nothing_is_known_by_own_history_as_soon_as_it_has_answered() -> None:
    (one,) = known([], history=belief((16, 16)))
    assert (one.state, one.answered, one.exact) == ("silent", 1, 1)
    assert known([]) == []
