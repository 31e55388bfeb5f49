"""Routers that decide separately and get each other's reports late. Even after losses, delays and restarts, no request
is counted twice, and old reports no longer count.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.shares import Apart, InstanceWork, OthersShare, PoolShare, share_of_others
from fairlead.routing.scheduling.others import KNOWN_SECONDS, SETTLING_SECONDS
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead.tables import PoolKey, RoutingTable
from fairlead.targets import targets_of
from fairlead_testing.builders.routing import dispatches, entry, request, table
from fairlead_testing.worlds.router_wire import Wire

TABLE = table([entry(f"i{number}") for number in range(4)], policy="fairlead", window=1, speed=1000.0)
WHY = Apart.NO_ANSWER.value


def apart(count: int, used: RoutingTable = TABLE) -> list[SharedScheduler]:
    made = [SharedScheduler(used, f"router-{number}", number) for number in range(count)]
    for scheduler in made:
        scheduler.know_routers(count)
        assert scheduler.share(WHY, 0.0) is not None
    return made


def shares(routers: list[SharedScheduler], now: float) -> dict[str, tuple[PoolShare, float]]:
    return {one.name: (share, 0.0) for one in routers if (share := one.share(WHY, now)) is not None}


def exchange(routers: list[SharedScheduler], now: float) -> None:
    told = shares(routers, now)
    for one in routers:
        one.know_others(share_of_others(one.name, one.table.pool, told), now)


def counted(router: SharedScheduler) -> int:
    return sum(load.others.in_flight for load in router.loads() if load.others is not None)


def under_way(router: SharedScheduler) -> int:
    return sum(row.in_flight for row in router.in_flight())


def test_a_router_counts_the_others_and_not_itself() -> None:
    first, second, third = apart(3)
    for number, router in enumerate((first, second, second, third, third, third)):
        router.submit(request(f"r{number}", 1000), 1.0)
    exchange([first, second, third], 1.0)
    assert (counted(first), counted(second), counted(third)) == (5, 4, 3)


def test_a_router_alone_or_asking_another_tells_nothing() -> None:
    (alone,) = [SharedScheduler(TABLE, "router-0", 0)]
    assert alone.share(WHY, 0.0) is None
    decider, front = apart(2)
    Wire(front, decider, 0.0)
    assert front.share(WHY, 1.0) is None
    front.know_others(_told(1), 1.0 + SETTLING_SECONDS)
    assert counted(front) == 0


def test_what_is_old_is_not_known_any_more() -> None:
    first, second = apart(2)
    second.submit(request("r", 1000), 0.0)
    exchange([first, second], 0.0)
    first.tick(KNOWN_SECONDS - 0.5)
    assert counted(first) == 1
    first.tick(KNOWN_SECONDS + 0.5)
    assert all(load.others is None for load in first.loads())
    first.know_others(replace(_told(7), age_seconds=KNOWN_SECONDS + 1), KNOWN_SECONDS + 1)
    assert counted(first) == 0


def test_after_asking_nothing_is_counted_that_may_be_its_own() -> None:
    decider, front = apart(2)
    Wire(front, decider, 0.0)
    front.ask_nobody(10.0)
    front.know_others(_told(3), 10.0 + SETTLING_SECONDS / 2)
    assert counted(front) == 0
    front.know_others(_told(3), 10.0 + SETTLING_SECONDS)
    assert counted(front) == 3


def _told(in_flight: int, instance: str = "i0") -> OthersShare:
    work = (InstanceWork(instance=instance, in_flight=in_flight),)
    return OthersShare(pool=TABLE.pool, names=("router-0", "router-1"), age_seconds=0.0, work=work)


WORD = st.tuples(
    st.sampled_from(["submit", "first", "complete", "tell", "lose", "late", "restart", "tick"]), st.integers(0, 2), st.floats(0.0, 3.0)
)


@given(words=st.lists(WORD, max_size=40))
def test_whatever_is_lost_late_or_restarted_nobody_is_counted_twice(words: list[tuple[str, int, float]]) -> None:
    """The counts of other routers always come from one exchange, with one report of each router."""
    routers = apart(3)
    now, sent, running, kept = 0.0, 0, [[], [], []], []  # type: ignore[var-annotated]
    said: list[set[int]] = [{0}, {0}, {0}]
    for what, who, seconds in words:
        now += seconds
        router = routers[who]
        if what == "submit":
            sent += 1
            running[who] += [one.request.id for one in dispatches(router.submit(request(f"r{sent}", 500, at=now), now))]
        elif what in {"first", "complete"} and running[who]:
            name = running[who][0]
            running[who] += [one.request.id for one in dispatches(router.first_token(name, now))]
            if what == "complete":
                running[who] += [one.request.id for one in dispatches(router.complete(name, now, 8, None))]
                running[who].remove(name)
        elif what in {"tell", "late", "lose"}:
            told = shares(routers, now)
            for number, one in enumerate(routers):
                share = share_of_others(one.name, TABLE.pool, told)
                said[number].add(sum(under_way(other) for other in routers if other is not one))
                if what == "tell":
                    one.know_others(share, now)
                elif what == "late":
                    kept.append((number, share))
        elif what == "restart":
            routers[who] = SharedScheduler(TABLE, f"router-{who}", 100 + sent)
            routers[who].know_routers(3)
            running[who] = []
        elif kept:
            number, share = kept.pop(0)
            routers[number].know_others(share, now)
        running[who] += [one.request.id for one in dispatches(routers[who].tick(now))]
        for number, one in enumerate(routers):
            assert counted(one) in said[number] | {0}
            assert not one.discrepancies()


ROWS = st.builds(
    InstanceWork,
    instance=st.sampled_from(["i0", "i1", "i9", "i2#0"]),
    in_flight=st.integers(-5, 2**60),
    waiting=st.integers(-5, 2**60),
    pending_prefill_tokens=st.integers(-5, 2**60),
    decoding=st.integers(-5, 2**60),
    decode_tokens=st.integers(-5, 2**60),
    prefill_share=st.floats(),
)


@given(rows=st.lists(ROWS, max_size=6), age=st.floats(-10, 20))
def test_whatever_is_told_a_choice_is_made_and_predictions_are_figures(rows: list[InstanceWork], age: float) -> None:
    first, _ = apart(2)
    first.know_others(replace(_told(0), work=tuple(rows), age_seconds=age), 1.0)
    decision = first.choose(request("r", 500), 1.0)
    assert decision is not None
    assert decision.ttft_seconds is not None
    assert 0.0 <= decision.ttft_seconds < float("inf")


def test_others_work_delays_what_is_predicted_by_no_more_than_it_is() -> None:
    first, _ = apart(2, table([entry("i0")], policy="fairlead", window=1, speed=1000.0))
    alone = first.choose(request("a", 500), 1.0)
    work = (InstanceWork(instance="i0", in_flight=1, pending_prefill_tokens=3000),)
    first.know_others(replace(_told(0), work=work), 1.0)
    beside = first.choose(request("b", 500), 1.0)
    assert alone is not None
    assert beside is not None
    assert [alone.ttft_seconds, beside.ttft_seconds] == pytest.approx([0.5, 3.5])


def test_a_prompt_goes_where_another_router_placed_its_beginning() -> None:
    first, second = apart(2)
    blocks = tuple((1 << 40) + (number << 12) for number in range(9))
    (sent,) = dispatches(first.submit(replace(request("a", 4500), blocks=blocks[:9], block_tokens=500), 0.0))
    exchange([first, second], 0.5)
    decision = second.choose(replace(request("b", 4600), blocks=blocks[:9], block_tokens=500), 0.5)
    assert decision is not None
    assert decision.instance == sent.instance


def test_of_an_unknown_rank_each_rank_has_a_part() -> None:
    ranked = replace(TABLE, instances=targets_of(TABLE.instances[:1], {"i0": (0, 1)}))
    first, _ = apart(2, ranked)
    first.know_others(_told(4), 1.0)
    assert [load.others.in_flight for load in first.loads() if load.others is not None] == [2, 2]


def test_routers_that_hear_of_each_other_prefer_instances_of_their_own() -> None:
    routers = apart(4)
    exchange(routers, 0.0)
    chosen = [decision.instance for one in routers if (decision := one.choose(request(f"r{one.name}", 500), 0.0)) is not None]
    assert sorted(chosen) == ["i0", "i1", "i2", "i3"]


def test_routers_that_hear_nothing_send_an_unknown_prompt_to_the_same_instance() -> None:
    for begin in range(20):
        asked = replace(request(f"r{begin}", 500), blocks=(begin << 30, begin), block_tokens=250)
        assert len({decision.instance for one in apart(4) if (decision := one.choose(asked, 0.0)) is not None}) == 1


def test_the_pool_of_a_share_is_its_own() -> None:
    told = share_of_others("me", PoolKey(namespace="n", name="p"), {})
    assert (told.names, told.work, told.prompts) == (("me",), (), ())


def test_only_routers_that_do_not_tell_are_assumed_to_have_as_much_as_this_one() -> None:
    routers = apart(3)
    assert [one.assumed_routers for one in routers] == [3, 3, 3]
    exchange(routers, 0.0)
    assert [one.assumed_routers for one in routers] == [1, 1, 1]
    for one in routers:
        one.know_routers(4)
    assert [one.assumed_routers for one in routers] == [2, 2, 2], "the fourth tells nothing"
