"""Sessions that move only when the request that carries them is sent, and only if there is room then."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import InstanceState
from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import MoveOutcome
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_testing.builders.routing import dispatches, entry, request, table

CAPACITY = 10_000
CONTEXT = tuple(range(10, 14))


def hot_home(instances: int = 2, capacity: int = CAPACITY, before_it: int = 0) -> PoolScheduler:
    """Return a scheduler with session s on i00, which computes `crowd`, while i01 computes `other`.

    Request b of s waits for i01 to move s. If a number of tokens is given, another request of this size waits before b.
    """
    pool = table(instances, policy="ear", parameters={"hot_tokens": 3_000, "least_gain_seconds": -3600.0}, kv_cache_tokens=capacity)
    scheduler = PoolScheduler(pool, "router-0", 1, sample_rate=1.0)
    scheduler.submit(request("a", 2_100, session="s", blocks=CONTEXT), 0.0)
    scheduler.first_token("a", 0.5)
    scheduler.complete("a", 1.0, 5, None)
    scheduler.submit(request("other", 2_500, session="t"), 1.0)
    if instances > 2:
        scheduler.submit(request("third", 2_900, session="v"), 1.0)
    scheduler.submit(request("crowd", 9_000, session="u"), 1.0)
    if before_it:
        scheduler.submit(request("before", before_it, session="t", at=1.5), 1.5)
    assert scheduler.submit(request("b", 2_200, session="s", blocks=CONTEXT, at=2.0), 2.0) == ()
    assert home_of(scheduler) == "i00"
    scheduler.take_records(2.0)
    return scheduler


def home_of(scheduler: PoolScheduler, session: str = "s") -> str | None:
    home = scheduler.binding(session)
    return None if home is None else home.instance


def sent(outcomes: Sequence[Dispatch | Refusal]) -> list[tuple[str, str]]:
    return [(one.request.id, one.instance) for one in dispatches(outcomes)]


def test_a_session_moves_when_its_request_is_sent_and_not_before() -> None:
    scheduler = hot_home()
    assert sent(scheduler.first_token("other", 3.0)) == [("b", "i01")]
    assert home_of(scheduler) == "i01"
    records = scheduler.take_records(3.0)
    (move,) = records.migrations
    assert (move.request, move.source, move.target, move.trigger, move.at) == ("b", "i00", "i01", BindingReason.HOT_MIGRATION, 3.0)
    assert [change.id for change in records.bindings] == [move.id]
    assert records.reroutes == ()
    # what it was decided by: 9,000 tokens wait on i00, where 2,048 of its own are cached, and 2,500 on i01
    assert move.predicted_source_ttft_seconds == pytest.approx((9_000 + 152) / 6_250 - 1.0)
    assert move.predicted_target_ttft_seconds == pytest.approx((2_500 + 2_200) / 6_250 - 2_500 / 6_250)


def test_a_request_goes_back_to_its_sessions_home_when_there_is_no_room_any_more() -> None:
    scheduler = hot_home()
    scheduler.observe_engine("i01", 0.7801, 2.5)
    assert sent(scheduler.first_token("other", 3.0)) == []
    assert home_of(scheduler) == "i00"
    load = scheduler.load("i00")
    assert load is not None
    assert (load.waiting, load.sessions) == (1, 2)
    ((answered, where),) = sent(scheduler.first_token("crowd", 4.0))
    assert (answered, where) == ("b", "i00")
    scheduler.first_token("b", 4.5)
    scheduler.complete("b", 4.6, 2, None)
    records = scheduler.take_records(5.0)
    assert records.migrations == ()
    (back,) = records.reroutes
    assert (back.request, back.session, back.source, back.target) == ("b", "s", "i01", "i00")
    assert (back.trigger, back.outcome) == (BindingReason.NO_ROOM, MoveOutcome.COMPLETED)
    decision = next(one for one in records.decisions if one.request == "b")
    assert (decision.chosen, decision.reason, decision.served_by) == ("i01", DecisionReason.SESSION_HOT_MIGRATED, "i00")
    assert scheduler.discrepancies() == ()


def test_exactly_the_room_it_needs_is_enough() -> None:
    scheduler = hot_home()
    scheduler.observe_engine("i01", 0.78, 2.5)
    assert sent(scheduler.first_token("other", 3.0)) == [("b", "i01")]
    assert home_of(scheduler) == "i01"


def test_what_was_sent_before_it_takes_room_too() -> None:
    """No engine reports its usage, so the requests that this router runs there count."""
    scheduler = hot_home(capacity=4_900, before_it=400)
    assert sent(scheduler.first_token("other", 3.0)) == [("before", "i01")]
    assert sent(scheduler.first_token("before", 3.5)) == []
    assert home_of(scheduler) == "i00"
    scheduler = hot_home(capacity=5_100, before_it=400)
    scheduler.first_token("other", 3.0)
    assert sent(scheduler.first_token("before", 3.5)) == [("b", "i01")]


def test_a_session_that_moved_meanwhile_is_not_moved_again() -> None:
    scheduler = hot_home(instances=3)
    scheduler.first_token("third", 2.5)  # i02 is idle now
    assert sent(scheduler.submit(request("c", 2_200, session="s", blocks=CONTEXT, at=2.5), 2.5)) == [("c", "i02")]
    assert home_of(scheduler) == "i02"
    assert sent(scheduler.first_token("other", 3.0)) == []
    assert sent(scheduler.first_token("c", 3.5)) == [("b", "i02")]
    records = scheduler.take_records(4.0)
    assert [(move.request, move.target) for move in records.migrations] == [("c", "i02")]
    assert [(move.request, move.target, move.trigger) for move in records.reroutes] == [("b", "i02", BindingReason.SESSION_MOVED)]


def test_a_session_whose_home_drains_meanwhile_moves_without_a_question_of_room() -> None:
    scheduler = hot_home()
    scheduler.observe_engine("i01", 0.99, 2.5)
    draining = (entry("i00", InstanceState.DRAINING), entry("i01"))
    parameters = {"hot_tokens": 3_000}
    scheduler.update_table(table(draining, policy="ear", parameters=parameters, kv_cache_tokens=CAPACITY, version=2), 2.6)
    assert sent(scheduler.first_token("other", 3.0)) == [("b", "i01")]
    (move,) = scheduler.take_records(3.0).migrations
    assert (move.source, move.target, move.trigger) == ("i00", "i01", BindingReason.DRAIN)


STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "token", "token", "end", "usage", "wait"]), st.integers(0, 5), st.integers(0, 2)),
    min_size=20,
    max_size=120,
)


@given(STEPS, st.sampled_from([1, 2]), st.booleans())
def test_a_migration_is_recorded_exactly_when_its_request_is_sent_to_the_new_home(
    steps: list[tuple[str, int, int]], window: int, cool_target: bool
) -> None:
    parameters = {"hot_tokens": 2_500, "cooldown_seconds": 1.0, "cool_target": cool_target}
    link: dict[str, Any] = {"kv_bytes_per_token": 100, "kv_transfer_bytes_per_second": 1e9}
    pool = table(3, policy="ear", parameters=parameters, window=window, kv_cache_tokens=9_000, **link)
    scheduler = PoolScheduler(pool, "router-0", 1, sample_rate=1.0)
    homes: dict[str, str] = {}
    begun: dict[str, str] = {}
    now = 0.0
    for number, (happens, which, session) in enumerate(steps):
        now += 0.05
        outcomes: tuple[Dispatch | Refusal, ...] = ()
        name = sorted(begun)[which % len(begun)] if begun else ""
        if happens == "ask":
            blocks = tuple(100 * session + depth for depth in range(5))
            outcomes = scheduler.submit(request(f"r{number}", 2_600 + which, session=f"s{session}", blocks=blocks, at=now), now)
        elif happens == "token":
            outcomes = scheduler.first_token(name, now)
        elif happens == "end":
            begun.pop(name, None)
            outcomes = scheduler.complete(name, now, 5, None)
        elif happens == "usage":
            scheduler.observe_engine(f"i0{session}", which / 5, now)
        else:
            now += 1.0
            outcomes = scheduler.tick(now)
        went = dict(sent(outcomes))
        begun |= went
        records = scheduler.take_records(now)
        moved = {change.session: change for change in records.bindings if change.previous not in (None, change.instance)}
        assert {change.id for change in moved.values()} == {move.id for move in records.migrations}
        for move in records.migrations:
            assert homes[move.session] == move.source
            assert went[move.request] == move.target
            homes[move.session] = move.target
        for back in records.reroutes:
            assert back.trigger in (BindingReason.NO_ROOM, BindingReason.SESSION_MOVED)
            assert back.target == homes[back.session or ""]
        for change in records.bindings:
            homes.setdefault(change.session, change.instance)
            if change.shared:
                del homes[change.session]
        bound = {session: home_of(scheduler, session) for session in homes}
        assert bound == homes, "a session has one home, the one that was told"
        counted = {load.entry.id: load.sessions for load in scheduler.loads()}
        assert counted == {name: list(homes.values()).count(name) for name in counted}
        assert scheduler.discrepancies() == ()
