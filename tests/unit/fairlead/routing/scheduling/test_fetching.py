"""Sessions that move with their KV blocks: when the scheduler decides on that, and what it learns from it."""

from dataclasses import replace

import pytest

from fairlead.instances import InstanceState
from fairlead.reports.moves import CacheFate, CacheTransfer
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead.tables import EVERY_MOVE, KvTransferFacts, RoutingTable
from fairlead_testing.builders.routing import dispatches, entry, table
from fairlead_testing.worlds.router_wire import Wire

BLOCK = table(1).engine.block_tokens
FAST = KvTransferFacts(tokens_per_second=1e6)


class Pool:
    """Two instances. A session has its context at the one that now drains."""

    def __init__(self, transfer: KvTransferFacts | None = FAST, **engine: float) -> None:
        self._engine = replace(table(1).engine, kv_transfer=transfer, **engine)  # type: ignore[arg-type]
        self.scheduler = PoolScheduler(self._table(1), "router-0", 0, sample_rate=1.0)
        self.source = self.turn("r0", 20, 0.0).instance
        self.end("r0", 1.0)
        self.scheduler.update_table(self._table(2, **{self.source: InstanceState.DRAINING}), 2.0)
        self.scheduler.take_records(2.0)

    def _table(self, version: int, **states: InstanceState) -> RoutingTable:
        entries = [entry(name, states.get(name, InstanceState.SERVING)) for name in "ab"]
        return replace(table(entries, policy="fairlead"), version=version, engine=self._engine)

    def turn(self, name: str, blocks: int, now: float, **more: object) -> Dispatch:
        request = RoutingRequest(
            id=name,
            arrived_at=now,
            prompt_tokens=blocks * BLOCK + 1,
            blocks=tuple(range(blocks)),
            first_bytes_hash=0,
            session="s",
            **{"movable": True, **more},  # type: ignore[arg-type]
        )
        (dispatch,) = dispatches(self.scheduler.submit(request, now))
        return dispatch

    def end(self, name: str, now: float) -> None:
        self.scheduler.first_token(name, now)
        self.scheduler.complete(name, now, 10, None)


def test_a_session_that_moves_fetches_what_its_home_held() -> None:
    pool = Pool()
    dispatch = pool.turn("r1", 22, 3.0)
    assert (dispatch.transfer_from, dispatch.transfer_tokens, dispatch.miss_tokens) == (pool.source, 20 * BLOCK, 2 * BLOCK + 1)
    assert dispatch.transfer_seconds is not None
    assert 0 < dispatch.transfer_seconds < dispatch.longest_transfer_seconds
    assert dispatch.longest_transfer_seconds == pytest.approx(
        (22 * BLOCK + 1) / pool.scheduler.table.engine.prefill_tokens_per_second, rel=0.5
    )
    pool.scheduler.transferred("r1", 3.4, CacheTransfer(fate=CacheFate.MOVED, seconds=0.4, tokens=20 * BLOCK, predicted_seconds=0.3))
    pool.end("r1", 4.0)
    (move,) = pool.scheduler.take_records(5.0).migrations
    assert (move.cache, move.tokens_moved, move.tokens_recomputed) == (CacheFate.MOVED, 20 * BLOCK, 0)
    assert (move.transfer_seconds, move.predicted_transfer_seconds) == (0.4, 0.3)
    assert pool.scheduler.discrepancies() == ()


@pytest.mark.parametrize("fate", [CacheFate.LATE, CacheFate.LOST, CacheFate.REFUSED, CacheFate.UNNAMED])
def test_what_does_not_come_counts_as_computed(fate: CacheFate) -> None:
    pool = Pool()
    dispatch = pool.turn("r1", 22, 3.0)
    pool.scheduler.transferred("r1", 4.0, CacheTransfer(fate=fate, seconds=1.0))
    load = pool.scheduler.load(dispatch.instance)
    assert load is not None
    assert load.pending_prefill_tokens == 22 * BLOCK + 1
    assert pool.scheduler.discrepancies() == ()
    pool.scheduler.take_records(5.0)
    pool.end("r1", 9.0)
    (outcome,) = pool.scheduler.take_records(10.0).migration_outcomes
    assert outcome.transfer == CacheTransfer(fate=fate, seconds=1.0), "the move was reported before it had an outcome"
    source = pool.scheduler.load(pool.source)
    assert source is not None
    assert source.transfers_out == 0
    assert pool.scheduler.prefill_estimate().samples == 1, "its time tells nothing of a prefill"


@pytest.mark.parametrize(
    ("transfer", "more"),
    [
        (None, {}),
        (KvTransferFacts(tokens_per_second=100.0), {}),
        (FAST, {"movable": False}),
    ],
    ids=["not declared", "slower than computing", "its sender cannot"],
)
def test_nothing_is_fetched_where_that_is_no_use(transfer: KvTransferFacts | None, more: dict[str, object]) -> None:
    pool = Pool(transfer)
    dispatch = pool.turn("r1", 22, 3.0, **more)
    assert (dispatch.transfer_from, dispatch.longest_transfer_seconds) == (None, 0.0)
    pool.end("r1", 9.0)
    (move,) = pool.scheduler.take_records(10.0).migrations
    assert (move.cache, move.tokens_moved, move.tokens_recomputed) == (None, 0, 20 * BLOCK)


def test_every_move_takes_its_blocks_along_where_that_is_asked_for() -> None:
    pool = Pool(KvTransferFacts(when=EVERY_MOVE, tokens_per_second=100.0, longest_seconds=7.0))
    dispatch = pool.turn("r1", 22, 3.0)
    assert (dispatch.transfer_from, dispatch.longest_transfer_seconds) == (pool.source, 7.0)


def leaving(sessions: int) -> PoolScheduler:
    """Return a scheduler of two instances. The sessions s0, s1, … have their contexts at the one that now drains."""
    engine = replace(table(1).engine, kv_transfer=KvTransferFacts(when=EVERY_MOVE))
    home = replace(table([entry("a"), entry("b", InstanceState.DRAINING)], policy="fairlead"), engine=engine)
    scheduler = PoolScheduler(home, "router-0", 0, sample_rate=1.0)
    for number in range(sessions):
        assert turn_of(scheduler, number, float(number)).instance == "a"
        scheduler.first_token(f"s{number}", number + 0.5)
        scheduler.complete(f"s{number}", number + 0.5, 10, None)
    away = [entry("a", InstanceState.DRAINING), entry("b")]
    scheduler.update_table(replace(home, version=2, instances=tuple(away)), float(sessions))
    return scheduler


def turn_of(scheduler: PoolScheduler, session: int, now: float) -> Dispatch:
    blocks = tuple(range(1000 * session, 1000 * session + 20))
    request = RoutingRequest(
        id=f"s{session}",
        arrived_at=now,
        prompt_tokens=20 * BLOCK + 1,
        blocks=blocks,
        first_bytes_hash=session,
        session=f"s{session}",
        movable=True,
    )
    (dispatch,) = dispatches(scheduler.submit(request, now))
    return dispatch


def test_an_engine_that_named_no_blocks_three_times_is_asked_once_in_five_minutes() -> None:
    scheduler = leaving(8)
    asked = []
    for session, now in enumerate([10.0, 20.0, 30.0, 40.0, 329.0, 331.0, 332.0, 640.0]):
        dispatch = turn_of(scheduler, session, now)
        asked.append(dispatch.transfer_from)
        if dispatch.transfer_from is not None:
            scheduler.transferred(f"s{session}", now, CacheTransfer(fate=CacheFate.UNNAMED, seconds=0.1))
        scheduler.first_token(f"s{session}", now + 0.5)
        scheduler.complete(f"s{session}", now + 0.5, 10, None)
    assert asked == ["a", "a", "a", None, None, "a", None, "a"]
    assert scheduler.handovers.in_vain("a") == 5
    assert scheduler.discrepancies() == ()


def test_the_router_that_decides_counts_what_the_others_report_and_each_counts_its_own() -> None:
    engine = replace(table(1).engine, kv_transfer=KvTransferFacts(when=EVERY_MOVE))
    home = replace(table([entry("a"), entry("b", InstanceState.DRAINING)], policy="fairlead"), engine=engine)
    decider, front = (SharedScheduler(home, f"router-{number}", number, sample_rate=1.0) for number in range(2))
    for scheduler in (decider, front):
        scheduler.know_routers(2)
    wire = Wire(front, decider, 0.0)

    def turn(session: int, now: float) -> str | None:
        asked = RoutingRequest(
            id=f"s{session}-{now}",
            arrived_at=now,
            prompt_tokens=20 * BLOCK + 1,
            blocks=tuple(range(1000 * session, 1000 * session + 20)),
            first_bytes_hash=session,
            session=f"s{session}",
            movable=True,
        )
        front.submit(asked, now)
        (dispatch,) = dispatches(wire.carry(now))
        if dispatch.transfer_from is not None:
            front.transferred(asked.id, now, CacheTransfer(fate=CacheFate.UNNAMED, seconds=0.1))
        front.first_token(asked.id, now + 0.5)
        front.complete(asked.id, now + 0.5, 10, None)
        wire.carry(now + 0.5)
        return dispatch.transfer_from

    assert [turn(session, float(session)) for session in range(4)] == [None] * 4
    away = replace(home, version=2, instances=(entry("a", InstanceState.DRAINING), entry("b")))
    for scheduler in (decider, front):
        scheduler.update_table(away, 5.0)
    assert [turn(session, 10.0 + session) for session in range(4)] == ["a", "a", "a", None]
    assert (decider.handovers.in_vain("a"), front.handovers.in_vain("a")) == (3, 3)


def test_another_engine_in_its_place_is_asked_at_once() -> None:
    scheduler = leaving(4)
    for _ in range(3):
        scheduler.handovers.note("a", 4.0, named_blocks=False)
    moved = [replace(entry("a", InstanceState.DRAINING), address="elsewhere:8000"), entry("b")]
    scheduler.update_table(replace(scheduler.table, version=3, instances=tuple(moved)), 5.0)
    assert not scheduler.handovers


def test_a_request_that_is_retried_fetches_nothing() -> None:
    pool = Pool()
    dispatch = pool.turn("r1", 22, 3.0)
    pool.scheduler.transferred("r1", 3.4, CacheTransfer(fate=CacheFate.MOVED, seconds=0.4, tokens=20 * BLOCK))
    again = pool.scheduler.retry("r1", 4.0, dispatch.instance)
    assert not isinstance(again, Dispatch) or again.transfer_from is None
    assert pool.scheduler.discrepancies() == ()


BUSY = 60
"""The number of blocks that the holder of a prefix computes when the next request for the prefix arrives."""


@pytest.mark.parametrize("policy", ["fairlead", "mooncake"])
@pytest.mark.parametrize("movable", [True, False])
def test_a_live_pool_weighs_fetching_as_a_modelled_one_does(policy: str, movable: bool) -> None:
    engine = replace(table(1).engine, kv_transfer=replace(FAST, when=EVERY_MOVE))
    scheduler = PoolScheduler(replace(table([entry("a"), entry("b")], policy=policy), engine=engine), "router-0", 0, sample_rate=1.0)

    def submit(name: str, blocks: range, now: float) -> list[Dispatch]:
        request = RoutingRequest(
            id=name,
            arrived_at=now,
            prompt_tokens=len(blocks) * BLOCK + 1,
            blocks=tuple(blocks),
            first_bytes_hash=blocks[0],
            movable=movable,
        )
        return list(dispatches(scheduler.submit(request, now)))

    (first,) = submit("first", range(20), 0.0)
    holder = first.instance
    scheduler.first_token("first", 4.0)
    scheduler.complete("first", 4.0, 10, None)
    (long,) = submit("long", range(BUSY), 5.0)
    assert long.instance == holder
    found = [(one.instance != holder, one.transfer_from, one.reason) for one in submit("next", range(20), 5.1)]
    if movable:
        assert found == [(True, holder, DecisionReason.PREFIX_REPLICATED)]
    else:
        assert all(source is None for _, source, _ in found), "it waits for the holder, or is computed elsewhere"
    assert scheduler.discrepancies() == ()


class Busy:
    """Two instances. A session has its context at the one that now computes a prompt of this many blocks."""

    def __init__(self, blocks: int) -> None:
        engine = replace(table(1).engine, kv_transfer=FAST)
        two = replace(table([entry("a"), entry("b")], policy="fairlead"), engine=engine)
        self.scheduler = PoolScheduler(two, "router-0", 0, sample_rate=1.0)
        self.home = self.turn("r0", "s", range(20), 0.0).instance
        self.scheduler.first_token("r0", 4.0)
        self.scheduler.complete("r0", 4.0, 10, None)
        self.scheduler.take_records(4.0)
        assert self.turn("long", "s", range(20 + blocks), 5.0).instance == self.home

    def turn(self, name: str, session: str, blocks: range, now: float) -> Dispatch:
        request = RoutingRequest(
            id=name,
            arrived_at=now,
            prompt_tokens=len(blocks) * BLOCK + 1,
            blocks=tuple(blocks),
            first_bytes_hash=blocks[0],
            session=session,
            movable=True,
        )
        return next(one for one in dispatches(self.scheduler.submit(request, now)) if one.request.id == name)


def test_a_transfer_that_can_only_come_too_late_is_not_begun_and_recorded_so() -> None:
    pool = Busy(60)
    dispatch = pool.turn("next", "s", range(20), 5.1)
    assert dispatch.instance != pool.home, "computing the prompt there is faster than waiting"
    assert (dispatch.transfer_from, dispatch.longest_transfer_seconds) == (None, 0.0), "its home names no block before it is done"
    pool.scheduler.first_token("next", 9.0)
    pool.scheduler.complete("next", 9.0, 10, None)
    records = pool.scheduler.take_records(10.0)
    (move,) = [one for one in records.migrations if one.request == "next"]
    assert (move.cache, move.tokens_moved, move.tokens_recomputed) == (CacheFate.LATE, 0, 20 * BLOCK)
    assert pool.scheduler.discrepancies() == ()


def test_a_session_stays_where_its_blocks_would_be_named_no_sooner_than_it_is_served() -> None:
    pool = Busy(6)
    waiting = pool.scheduler.load(pool.home)
    assert waiting is not None and waiting.prefilling == 1
    request = pool.scheduler.submit(
        RoutingRequest(
            id="next", arrived_at=5.1, prompt_tokens=20 * BLOCK + 1, blocks=tuple(range(20)), first_bytes_hash=0, session="s", movable=True
        ),
        5.1,
    )
    assert list(request) == [], "it waits at its home, which is done sooner than it could be elsewhere"
    assert pool.scheduler.take_records(6.0).migrations == ()


def test_what_nobody_waits_for_is_fetched_from_a_pair_that_was_too_slow_and_has_time() -> None:
    pool = Pool(KvTransferFacts(tokens_per_second=2000.0))
    assert pool.turn("r1", 22, 3.0).transfer_from is None, "a client's request would wait for too long"
    pool.scheduler.cancel("r1", 3.1)
    pool = Pool(KvTransferFacts(tokens_per_second=2000.0))
    other = "b" if pool.source == "a" else "a"
    late = CacheTransfer(fate=CacheFate.LATE, seconds=1.0)
    pool.scheduler._state.transfers.observe(pool.source, other, late, 1.0, 2.5)
    dispatch = pool.turn("heir", 20, 3.0, warms=True)
    assert (dispatch.transfer_from, dispatch.longest_transfer_seconds >= 10.0) == (pool.source, True)


@pytest.mark.parametrize("predicted", [9.0, 11.0, 1000.0])
def test_what_nobody_waits_for_is_fetched_however_long_it_is_predicted_to_take(predicted: float) -> None:
    pool = Pool(KvTransferFacts(tokens_per_second=20 * BLOCK / predicted))
    dispatch = pool.turn("heir", 20, 3.0, warms=True)
    assert (dispatch.transfer_from, dispatch.longest_transfer_seconds >= 10.0) == (pool.source, True)
    assert dispatch.miss_tokens == 1, "nothing else is computed for it"


def test_what_was_measured_is_what_policies_weigh() -> None:
    pool = Pool(KvTransferFacts())
    request = pool.turn("r1", 22, 3.0).request
    view = pool.scheduler._state.view
    before = view.fetching(request)
    assert before is not None
    assert before.rate == pytest.approx(2 * view.prefill_speed), "half of what computing takes, as long as nothing is known"
    pool.scheduler.transferred("r1", 5.0, CacheTransfer(fate=CacheFate.MOVED, seconds=2.0, tokens=20 * BLOCK))
    after = view.fetching(request)
    assert after is not None
    assert after.rate > 20 * BLOCK / 2.0, "the new part of the prompt was computed in that time too"
