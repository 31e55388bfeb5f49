"""Copies of prefixes that many sessions share: which are made, which are never made, and their records."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import CacheFate, CacheTransfer, MoveOutcome, ReRouteRecord
from fairlead.routing.contracts.copies import PrefixCopy
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.explanations.explaining_moves import explain_move
from fairlead.routing.explanations.move_checking import cause_contradictions
from fairlead.routing.scheduling import fetching
from fairlead.routing.scheduling.copying import LEAST_GAIN_SECONDS, MOST_PLACES, WINDOW_SECONDS
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import COPIES_THAT_PAY, NO_COPIES, KvTransferFacts, RoutingTable
from fairlead_client.resources.moves import ReRoute
from fairlead_testing.builders.routing import dispatches, entry, table
from fairlead_testing.examples import examples
from fairlead_testing.worlds.rare_moves import Served

BLOCK = table(1).engine.block_tokens
COPYING = KvTransferFacts(tokens_per_second=1e6, copies=COPIES_THAT_PAY)
LONG = 20
"""The number of blocks of a shared prefix."""


@dataclass
class Pool:
    """A scheduler, the turns that its router keeps, and which prompts each instance has computed or fetched."""

    facts: KvTransferFacts | None = COPYING
    instances: Sequence[str] = "abcd"
    budget: float = 0.2
    turns: list[Served] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = PoolScheduler(self.table(), "router-0", 0, sample_rate=1.0)
        self.held: dict[str, set[int]] = {name: set() for name in self.instances}

    def table(self) -> RoutingTable:
        found = table([entry(name) for name in self.instances], policy="round-robin")
        routing = replace(found.routing, hand_over_budget=self.budget)
        return replace(found, engine=replace(found.engine, kv_transfer=self.facts), routing=routing)

    def ask(self, group: int, depth: int, now: float, within: str | None = None) -> tuple[RoutingRequest, str]:
        """Begin a session with the first `depth` blocks of its group's prefix, and return the instance that it is sent
        to.
        """
        number = len(self.turns)
        own = 1_000_000 + number
        blocks = (*range(1000 * group, 1000 * group + depth), own)
        request = RoutingRequest(
            id=f"r{number}",
            arrived_at=now,
            prompt_tokens=len(blocks) * BLOCK + 1,
            blocks=blocks,
            first_bytes_hash=0,
            session=f"s{number}",
            movable=True,
            within=None if within is None else (within,),
        )
        (sent,) = dispatches(self.scheduler.submit(request, now))
        self.turns.append(Served(request, now, now))
        return request, sent.instance

    def answer(self, asked: tuple[RoutingRequest, str], now: float) -> None:
        request, instance = asked
        self.scheduler.first_token(request.id, now)
        self.scheduler.complete(request.id, now, 5, None)
        self.held[instance].update(request.blocks)

    def serve(self, group: int, depth: int, now: float, within: str | None = None) -> str:
        asked = self.ask(group, depth, now, within)
        self.answer(asked, now)
        return asked[1]

    def due(self, now: float) -> PrefixCopy | None:
        return self.scheduler.copy_due(reversed(self.turns), now)

    def end(self, copy: PrefixCopy, now: float, seconds: float = 0.5, fate: CacheFate = CacheFate.MOVED) -> None:
        tokens = copy.source_tokens - copy.target_tokens if fate is CacheFate.MOVED else 0
        self.scheduler.copied(copy, CacheTransfer(fate=fate, seconds=seconds, tokens=tokens), now)
        if fate is CacheFate.MOVED:
            self.held[copy.target].update(copy.request.blocks)


def hot(pool: Pool, sessions: int = 8, now: float = 1.0) -> Pool:
    """Return a pool with sessions that share a prefix, all at instance a."""
    for _ in range(sessions):
        pool.serve(1, LONG, now, within="a")
    return pool


def shown(record: ReRouteRecord) -> ReRoute:
    """Return the record of a copy as the API shows it."""
    told: dict[str, Any] = {one.name: getattr(record, one.name) for one in fields(record)}
    told |= {"pool": str(record.pool), "at": datetime.fromtimestamp(record.at, UTC), "router": "router-0"}
    return ReRoute(**told, explanation="", paid_off=None)


def test_a_hot_prefix_is_copied_to_each_instance_that_lacks_it_and_then_to_none() -> None:
    pool, now, targets = hot(Pool()), 2.0, []
    while (copy := pool.due(now)) is not None:
        assert copy.source == "a" or copy.source in targets
        targets.append(copy.target)
        pool.end(copy, now + 0.5)
        now += 5.0
    assert sorted(targets) == ["b", "c", "d"]


def test_the_record_says_what_was_copied_and_what_was_predicted() -> None:
    pool = hot(Pool())
    copy = pool.due(2.0)
    assert copy is not None
    pool.end(copy, 2.5)
    (record,) = pool.scheduler.take_records(3.0).reroutes
    assert (record.trigger, record.outcome, record.cache) == (BindingReason.PREFIX_COPIED, MoveOutcome.COMPLETED, CacheFate.MOVED)
    assert (record.session, record.source, record.target) == (None, "a", copy.target)
    assert record.tokens_moved >= LONG * BLOCK
    assert (record.transfer_seconds, record.predicted_transfer_seconds) == (0.5, copy.cost_seconds)
    assert (record.crossed, record.threshold) == (copy.saving_seconds, copy.cost_seconds + LEAST_GAIN_SECONDS)
    assert cause_contradictions(record) == []
    told = explain_move(shown(record), "")
    assert told.startswith(f"A prefix was copied from a to {copy.target}: many sessions begin with this prefix")
    assert "the copy was predicted to save" in told


def test_a_copy_that_fails_is_recorded_so_computed_by_nobody_and_not_tried_again_at_once() -> None:
    pool = hot(Pool(instances="ab"))
    copy = pool.due(2.0)
    assert copy is not None
    pool.end(copy, 3.0, fate=CacheFate.LOST)
    (record,) = pool.scheduler.take_records(3.0).reroutes
    assert (record.outcome, record.tokens_moved, record.tokens_recomputed) == (MoveOutcome.FAILED, 0, 0)
    assert pool.due(30.0) is None


@pytest.mark.parametrize(
    "facts",
    [None, replace(COPYING, copies=NO_COPIES), replace(COPYING, tokens_per_second=1000.0)],
    ids=["nothing is handed on", "not asked for", "slower than computing"],
)
def test_nothing_is_copied_where_that_is_no_use(facts: KvTransferFacts | None) -> None:
    assert hot(Pool(facts)).due(2.0) is None


def test_a_prefix_that_is_being_computed_at_an_instance_is_not_copied_there() -> None:
    pool = hot(Pool(instances="ab"))
    pool.ask(1, LONG, 1.5, within="b")
    assert pool.due(2.0) is None


def test_sessions_that_began_long_ago_make_no_prefix_hot() -> None:
    pool = hot(Pool())
    pool.turns = [replace(turn, at=200.0) for turn in pool.turns]
    assert pool.due(200.0) is None


def test_only_the_one_router_that_decides_copies() -> None:
    pool = hot(Pool())
    pool.scheduler.know_routers(2)
    assert pool.due(2.0) is None
    pool.scheduler.know_routers(1)
    assert pool.due(2.0) is not None


def test_copies_rest_as_long_as_their_budget_says() -> None:
    pool = hot(Pool(budget=0.02))
    first = pool.due(2.0)
    assert first is not None
    assert pool.due(2.1) is None, "one is under way"
    pool.end(first, 2.2, seconds=0.2)
    assert pool.due(11.9) is None
    assert pool.due(12.1) is not None, "0.2 s of 10 are a fiftieth"


def test_what_copies_took_decides_whether_the_next_one_pays() -> None:
    pool = hot(Pool())
    first = pool.due(2.0)
    assert first is not None
    pool.end(first, 7.0, seconds=5.0)
    assert pool.due(40.0) is None


def test_without_a_budget_nothing_is_copied() -> None:
    assert hot(Pool(budget=0.0)).due(2.0) is None


def test_a_look_compares_as_much_in_a_pool_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def counted(_state: object, _request: object, source: str, target: str, _now: float) -> bool:
        compared.append((source, target))
        return False

    monkeypatch.setattr(fetching, "can_hand_on", counted)
    names = [f"i{number}" for number in range(100)]
    pool = Pool(instances=names)
    for name in names[:50]:
        pool.serve(1, LONG, 1.0, within=name)
    busy = [pool.ask(2, LONG, 1.5, within=name)[1] for name in (*names[:5], *names[95:])]
    assert pool.due(2.0) is None
    assert len(compared) == MOST_PLACES**2
    assert not set(busy) & {name for pair in compared for name in pair}, "the least busy"


STEPS = st.lists(
    st.tuples(
        st.floats(0.05, 20.0),
        st.integers(0, 3),
        st.integers(1, LONG),
        st.sampled_from("abcd"),
        st.floats(0.01, 8.0),
        st.sampled_from([CacheFate.MOVED, CacheFate.MOVED, CacheFate.LATE, CacheFate.LOST]),
        st.booleans(),
    ),
    min_size=5,
    max_size=60,
)


@dataclass
class Course:
    """The events of a random history."""

    began: list[tuple[float, PrefixCopy]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    ended_at: float = 0.0


def run(pool: Pool, steps: list[tuple[float, int, int, str, float, CacheFate, bool]]) -> Iterator[tuple[Course, PrefixCopy]]:
    """Run a history and yield each copy as it begins. Some sessions still compute at the next look, and copies take
    time.
    """
    course, now = Course(), 1.0
    computed: list[tuple[RoutingRequest, str]] = []
    for pause, group, depth, place, seconds, fate, waits in steps:
        now += pause
        for asked in computed:
            pool.answer(asked, now)
        computed = [pool.ask(group, depth, now, within=place)]
        if not waits:
            pool.answer(computed.pop(), now)
        copy = pool.due(now)
        if copy is not None:
            assert pool.due(now) is None, "one at a time"
            course.began.append((now, copy))
            yield course, copy
            coming = {block for request, instance in computed if instance == copy.target for block in request.blocks}
            assert copy.request.blocks[copy.prefix_tokens // BLOCK - 1] not in pool.held[copy.target] | coming
            now += seconds
            course.seconds.append(seconds)
            pool.end(copy, now, seconds, fate)
        course.ended_at = now


@given(steps=STEPS)
@examples(150)
def test_copies_pay_are_never_made_twice_and_keep_to_their_budget(steps: list[tuple[float, int, int, str, float, CacheFate, bool]]) -> None:
    pool = Pool(replace(COPYING, tokens_per_second=40_000.0))
    seen: dict[tuple[str, int], float] = {}
    course = Course()
    for course, copy in run(pool, steps):
        at = course.began[-1][0]
        assert copy.gain_seconds >= LEAST_GAIN_SECONDS
        assert copy.sessions >= 2
        assert set(copy.request.blocks[: copy.prefix_tokens // BLOCK]) <= pool.held[copy.source]
        last = copy.target, copy.request.blocks[copy.prefix_tokens // BLOCK - 1]
        assert at - seen.get(last, -WINDOW_SECONDS) >= WINDOW_SECONDS
        seen |= {(copy.target, block): at for block in copy.request.blocks}
    spent, longest = sum(course.seconds), max(course.seconds, default=0.0)
    assert spent <= 0.2 * course.ended_at + longest
    assert pool.scheduler.discrepancies() == ()
