"""Sessions of a draining instance stay bound until their next request, and then the policy chooses its instance."""

from dataclasses import replace

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import BindingReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import InstanceEntry, RoutingTable
from fairlead_testing.builders.routing import dispatches, entry, table

BLOCK_TOKENS = table(1).engine.block_tokens
FIRST_TURN = tuple(range(4))
SECOND_TURN = tuple(range(20))
THIRD_TURN = tuple(range(24))


def a_turn(name: str, blocks: tuple[int, ...], now: float, session: str = "s") -> RoutingRequest:
    tokens = len(blocks) * BLOCK_TOKENS + 1
    return RoutingRequest(id=name, arrived_at=now, prompt_tokens=tokens, blocks=blocks, first_bytes_hash=blocks[0], session=session)


class Pool:
    """A scheduler whose instances change, and answer at once."""

    def __init__(self, policy: str, *names: str) -> None:
        self.entries = {name: entry(name) for name in names}
        self.scheduler = PoolScheduler(self._table(1, policy), "router-0", 0, sample_rate=1.0)
        self.policy = policy

    def _table(self, version: int, policy: str) -> RoutingTable:
        return replace(table(list(self.entries.values()), policy=policy), version=version)

    def turns(self, now: float, **entries: InstanceEntry | None) -> None:
        """Replace these entries of the table; None removes the instance from it."""
        for name, one in entries.items():
            if one is None:
                del self.entries[name]
            else:
                self.entries[name] = one
        self.scheduler.update_table(self._table(self.scheduler.table.version + 1, self.policy), now)
        self.scheduler.tick(now)

    def serve(self, request: RoutingRequest, now: float) -> str:
        """Serve a request and return the instance that answered."""
        (dispatch,) = dispatches(self.scheduler.submit(request, now))
        self.scheduler.first_token(request.id, now)
        self.scheduler.complete(request.id, now, 10, None)
        return dispatch.instance


def draining(name: str) -> InstanceEntry:
    return entry(name, InstanceState.DRAINING, anchors=0)


def a_session_that_moved() -> tuple[Pool, str, str]:
    """Return a session whose first turn was computed at one instance, and its second at another, which is its home
    now.
    """
    pool = Pool("fairlead", "a", "b", "c")
    former = pool.serve(a_turn("r1", FIRST_TURN, 0.0), 0.0)
    pool.turns(1.0, **{former: entry(former, InstanceState.CORDONED, anchors=0)})
    home = pool.serve(a_turn("r2", SECOND_TURN, 2.0), 2.0)
    pool.turns(3.0, **{former: entry(former)})
    pool.scheduler.take_records(4.0)
    return pool, former, home


@pytest.mark.parametrize("gone", [False, True], ids=["draining", "gone"])
def test_a_drained_session_goes_where_its_prefix_is_and_the_record_says_that_a_drain_moved_it(gone: bool) -> None:
    pool, former, home = a_session_that_moved()
    pool.turns(10.0, **{home: draining(home)})
    assert pool.scheduler.take_records(10.0).migrations == (), "nothing has moved yet"
    if gone:
        pool.turns(20.0, **{home: None})
    assert pool.serve(a_turn("r3", THIRD_TURN, 30.0), 30.0) == former
    records = pool.scheduler.take_records(40.0)
    (move,) = records.migrations
    assert (move.session, move.request, move.source, move.target, move.trigger) == ("s", "r3", home, former, BindingReason.DRAIN)
    assert move.tokens_recomputed >= (len(SECOND_TURN) - len(FIRST_TURN)) * BLOCK_TOKENS, "what only the drained instance held"
    assert [(change.previous, change.instance, change.reason) for change in records.bindings] == [(home, former, BindingReason.DRAIN)]


def test_a_session_whose_drain_was_called_off_is_at_home_again_with_its_cache() -> None:
    pool, _, home = a_session_that_moved()
    pool.turns(10.0, **{home: draining(home)})
    pool.turns(11.0, **{home: entry(home)})
    assert pool.serve(a_turn("r3", THIRD_TURN, 30.0), 30.0) == home
    assert pool.scheduler.take_records(40.0).migrations == ()


def test_a_session_leaves_an_instance_that_drained_and_only_decodes_since() -> None:
    pool, former, home = a_session_that_moved()
    pool.turns(10.0, **{home: draining(home)})
    pool.turns(20.0, **{home: entry(home, role=Role.DECODE, anchors=0)})
    assert pool.serve(a_turn("r3", THIRD_TURN, 30.0), 30.0) == former
    (move,) = pool.scheduler.take_records(40.0).migrations
    assert (move.source, move.trigger) == (home, BindingReason.DRAIN)


def test_a_session_of_an_instance_that_left_the_table_without_draining_lost_it() -> None:
    pool, former, home = a_session_that_moved()
    pool.turns(20.0, **{home: None})
    assert pool.serve(a_turn("r3", THIRD_TURN, 30.0), 30.0) == former
    (move,) = pool.scheduler.take_records(40.0).migrations
    assert (move.source, move.trigger) == (home, BindingReason.INSTANCE_LOST)


def test_nothing_is_predicted_for_staying_at_an_instance_that_is_lost_but_still_in_the_table() -> None:
    pool, former, home = a_session_that_moved()
    pool.turns(20.0, **{home: entry(home, InstanceState.LOST, anchors=0)})
    assert pool.serve(a_turn("r3", THIRD_TURN, 30.0), 30.0) == former
    (move,) = pool.scheduler.take_records(40.0).migrations
    assert (move.trigger, move.predicted_source_ttft_seconds, move.benefit_seconds) == (BindingReason.INSTANCE_LOST, None, None)
    assert move.predicted_target_ttft_seconds is not None


def test_why_an_instance_left_is_forgotten_with_its_last_session() -> None:
    pool, _, home = a_session_that_moved()
    pool.turns(10.0, **{home: draining(home)})
    pool.turns(20.0, **{home: None})
    assert pool.scheduler._state.drained == {home}
    pool.serve(a_turn("r3", THIRD_TURN, 30.0), 30.0)
    pool.scheduler.tick(31.0)
    assert pool.scheduler._state.drained == set()
