"""Data-parallel ranks: placement, loads and sessions treat each as its own target, but failures are the instance's."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.bindings import Binding, BindingReason
from fairlead.routing.contracts.faults import Fault
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.knowledge.rings import HashRing
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import InstanceEntry
from fairlead.targets import Ranks, instance_of, rank_of, target_of, targets_of
from fairlead_testing.builders.routing import POOL, dispatches, entries, request, table

EIGHT: Ranks = tuple(range(8))
POLICIES = ("fairlead", "dualmap", "sticky", "cache-affinity", "min-ttft", "ear", "preble")
KEEP_HOMES = ("fairlead", "sticky", "ear")


def ranked(instances: int, ranks: Ranks = EIGHT) -> tuple[InstanceEntry, ...]:
    return targets_of(entries(instances), {entry.id: ranks for entry in entries(instances)})


def scheduler(instances: Any, policy: str = "fairlead", **facts: Any) -> PoolScheduler:
    return PoolScheduler(table(instances, policy=policy, **facts), "router-0", 1, sample_rate=1.0)


def turn(session: int, number: int, at: float) -> RoutingRequest:
    """Return a turn of a conversation, with all blocks of the turns before it and four new ones."""
    blocks = tuple(hash((session, place)) & (2**64 - 1) for place in range(4 * (number + 1)))
    return request(f"s{session}t{number}", 512 * len(blocks) + 10, blocks=blocks, session=f"s{session}", at=at)


def serve(live: PoolScheduler, asked: RoutingRequest, now: float, seconds: float = 0.1) -> Dispatch:
    """Serve one request from its submission to its end; nothing else is in flight."""
    (sent,) = dispatches(live.submit(asked, now))
    live.first_token(asked.id, now + seconds)
    live.complete(asked.id, now + 2 * seconds, 10, None)
    return sent


def held(live: PoolScheduler, session: str) -> str | None:
    binding = live.binding(session)
    return None if binding is None else binding.instance


@pytest.mark.parametrize("policy", POLICIES)
def test_each_later_turn_goes_to_the_rank_of_its_first_and_hits_equal_those_of_eight_engines(policy: str) -> None:
    ranks, engines = scheduler(ranked(1), policy, window=0), scheduler(8, policy, window=0)
    hits: Counter[str] = Counter()
    homes: dict[int, set[str]] = defaultdict(set)
    for number in range(6):
        now = 100.0 * number
        for name, live in (("ranks", ranks), ("engines", engines)):
            for session in range(24):  # a turn of all, at once
                (sent,) = dispatches(live.submit(turn(session, number, now), now))
                hits[name] += sent.hit_tokens
                homes[session].update((sent.instance,) if name == "ranks" else ())
            for session in range(24):
                live.first_token(f"s{session}t{number}", now + 1)
                live.complete(f"s{session}t{number}", now + 2, 10, None)
    assert all(len(each) == 1 for each in homes.values())
    assert hits["ranks"] == hits["engines"] > 0
    assert len({target for each in homes.values() for target in each}) > 4, "they are spread over the ranks"


def test_one_overloaded_rank_of_eight_is_avoided() -> None:
    live = scheduler(ranked(1), "fairlead")
    (first,) = dispatches(live.submit(request("big", 200_000), 0.0))
    others = [dispatches(live.submit(request(f"r{number}", 2_000, at=0.1), 0.1)) for number in range(7)]
    assert first.instance not in {sent.instance for each in others for sent in each}
    assert len({sent.instance for each in others for sent in each}) == 7


@pytest.mark.parametrize("policy", POLICIES)
def test_ranks_discovered_late_leave_every_session_at_its_instance(policy: str) -> None:
    live = scheduler(4, policy)
    homes = {}
    for session in range(40):
        homes[session] = serve(live, turn(session, 0, session * 0.4), session * 0.4).instance
    live.update_table(replace(table(ranked(4), policy=policy), version=2), 20.0)
    after = {}
    for session in range(40):
        after[session] = serve(live, turn(session, 1, 30.0 + session * 0.4), 30.0 + session * 0.4).instance
    if policy in KEEP_HOMES:
        assert {session: instance_of(target) for session, target in after.items()} == homes
        assert live.take_records(60.0).migrations == (), "nothing moved: it is only better known where it is"
    assert all(rank_of(target) is not None for target in after.values())
    third = {session: serve(live, turn(session, 2, 50.0 + session), 50.0 + session).instance for session in range(40)}
    assert third == after, "and from now on each stays at its rank"


@pytest.mark.parametrize("policy", KEEP_HOMES)
def test_a_lost_rank_moves_its_own_sessions_only(policy: str) -> None:
    live = scheduler(ranked(2), policy)
    homes = {session: serve(live, turn(session, 0, session * 0.4), session * 0.4).instance for session in range(40)}
    lost = Counter(homes.values()).most_common(1)[0][0]
    left = tuple(one for one in ranked(2) if one.id != lost)
    live.update_table(replace(table(left, policy=policy), version=2), 20.0)
    after = {session: serve(live, turn(session, 1, 30.0 + session), 30.0 + session).instance for session in range(40)}
    assert {session for session in homes if homes[session] != after[session]} == {session for session in homes if homes[session] == lost}


def test_a_session_whose_rank_was_told_before_it_is_known_goes_there_once_it_is() -> None:
    """After a restart of the router, bindings are recalled before any engine was asked for its ranks."""
    live = scheduler(2, "fairlead")
    told = Binding(pool=POOL, session="s1", instance="i01", rank=5, version=3, reason=BindingReason.COLD, bound_at=0.0, migrated_at=None)
    live.apply_bindings([told], 0.0)
    assert held(live, "s1") == "i01"
    assert serve(live, turn(1, 0, 1.0), 1.0).instance == "i01"
    live.update_table(replace(table(ranked(2)), version=2, routing=live.table.routing), 2.0)
    assert held(live, "s1") == "i01#5" and live.load("i01#5").sessions == 1  # type: ignore[union-attr]
    assert serve(live, turn(1, 1, 3.0), 3.0).instance == "i01#5"
    assert live.take_records(9.0).migrations == ()


def test_an_api_that_tells_no_rank_leaves_a_session_at_its_own() -> None:
    live = scheduler(ranked(2), "fairlead")
    home = serve(live, turn(1, 0, 1.0), 1.0).instance
    (change,) = live.take_records(2.0).bindings
    told = Binding(
        pool=POOL, session="s1", instance=change.instance, version=1, reason=change.reason, bound_at=1.0, migrated_at=None, change=change.id
    )
    live.apply_bindings([told], 3.0)
    assert held(live, "s1") == home == serve(live, turn(1, 1, 4.0), 4.0).instance
    other = "i01" if change.instance == "i00" else "i00"
    live.apply_bindings([replace(told, instance=other, version=2, reason=BindingReason.OPERATOR, change="plan")], 5.0)
    assert instance_of(held(live, "s1") or "") == other, "a person moved it"


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("bind"), st.integers(0, 5), st.integers(0, 1), st.one_of(st.none(), st.integers(0, 7))),
            st.tuples(st.just("ranks"), st.integers(0, 1), st.integers(0, 8), st.none()),
        ),
        max_size=30,
    )
)
def test_sessions_are_counted_where_they_are_whatever_becomes_known_of_ranks(steps: list[tuple[str, int, int, int | None]]) -> None:
    live, ranks, version = scheduler(2, "fairlead"), dict[str, Ranks](), 1
    for action, one, two, rank in steps:
        version += 1
        if action == "bind":
            told = Binding(
                pool=POOL, session=f"s{one}", instance=f"i0{two}", rank=rank, version=version, reason=BindingReason.COLD,
                bound_at=0.0, migrated_at=None,
            )  # fmt: skip
            live.apply_bindings([told], 1.0)
        else:
            ranks[f"i0{one}"] = tuple(range(two)) if two > 1 else ()
            live.update_table(replace(table(targets_of(entries(2), ranks), policy="fairlead"), version=version), 1.0)
        for session in range(6):
            home = live.binding(f"s{session}")
            if home is not None and home.instance is not None:
                known = ranks.get(instance_of(home.instance), ())
                assert (rank_of(home.instance) is not None) == bool(known)
                if known and home.rank is not None:
                    assert rank_of(home.instance) == home.rank
        homes = [target for session in range(6) if (target := held(live, f"s{session}")) is not None]
        counted = Counter(target for target in homes if live.load(target) is not None)
        assert {load.entry.id: load.sessions for load in live.loads() if load.sessions} == dict(counted)


def test_a_decision_is_recorded_with_instance_and_rank() -> None:
    live = scheduler(ranked(2, (0, 1)), "fairlead")
    sent = serve(live, request("r1", 2_000, session="s"), 0.0)
    records = live.take_records(5.0, final=True)
    (decision,) = records.decisions
    assert (decision.chosen, decision.chosen_rank) == (instance_of(sent.instance), rank_of(sent.instance))
    assert (decision.served_by, decision.served_by_rank) == (decision.chosen, decision.chosen_rank)
    assert decision.runner_up in ("i00", "i01") and decision.runner_up_rank in (0, 1)
    assert decision.weighing.candidates[0].instance == sent.instance
    (change,) = records.bindings
    assert (change.instance, change.rank, change.previous, change.previous_rank) == (decision.chosen, decision.chosen_rank, None, None)
    busy = {(sample.instance, sample.rank) for sample in records.loads if sample.requests}
    assert busy == {(decision.chosen, decision.chosen_rank)}
    assert {row.instance: row.in_flight for row in live.in_flight()} == {"i00": 0, "i01": 0}


def test_what_is_in_flight_is_told_by_instance() -> None:
    live = scheduler(ranked(2), "round-robin", window=0)
    for number in range(5):
        live.submit(request(f"r{number}"), 0.0)
    assert sum(row.in_flight for row in live.in_flight()) == 5
    assert {row.instance for row in live.in_flight()} == {"i00", "i01"}


def test_a_session_that_moves_between_two_ranks_of_an_instance_is_a_migration() -> None:
    live = scheduler(ranked(1, (0, 1)), "fairlead")
    home = serve(live, turn(1, 0, 0.0), 0.0).instance
    (other,) = {"i00#0", "i00#1"} - {home}
    live.take_records(5.0)
    left = tuple(one for one in ranked(1, (0, 1)) if one.id == other)
    live.update_table(replace(table(left, policy="fairlead"), version=2), 6.0)
    assert serve(live, turn(1, 1, 7.0), 7.0).instance == other
    records = live.take_records(9.0)
    (move,) = records.migrations
    assert (move.source, move.source_rank, move.target, move.target_rank) == ("i00", rank_of(home), "i00", rank_of(other))
    (change,) = records.bindings
    assert not change.stays and (change.previous_rank, change.rank) == (rank_of(home), rank_of(other))


# ── what is the instance's ──


@pytest.mark.parametrize("policy", KEEP_HOMES)
def test_a_name_that_turns_out_to_be_shared_is_given_up_at_its_instance_and_rank(policy: str) -> None:
    live = scheduler(ranked(1), policy)
    for number in range(12):
        asked = replace(turn(0, 0, 0.1 * number), id=f"r{number}", beginning=number + 1)
        live.submit(asked, asked.arrived_at)
    changes = live.take_records(2.0).bindings
    (given_up,) = [change for change in changes if change.shared]
    home = [change for change in changes[: changes.index(given_up)] if change.session == "s0"][-1]
    assert given_up.stays and (given_up.instance, given_up.rank) == ("i00", home.rank) and home.rank is not None
    assert live.binding("s0") is None
    bound = {change.session for change in changes} - {"s0"}
    assert sum(load.sessions for load in live.loads()) == len(bound) > 0


def test_a_refused_connection_at_one_rank_takes_all_ranks_out() -> None:
    live = scheduler(ranked(2), "round-robin", window=0)
    for _ in range(3):
        live.instance_failed("i00#3", 0.0, Fault.UNREACHED)
    assert live.broken(0.1) == ("i00",)
    sent = [one for number in range(16) for one in dispatches(live.submit(request(f"r{number}"), 0.1))]
    assert {instance_of(one.instance) for one in sent} == {"i01"}
    live.instance_worked("i00#5", 0.2)
    assert live.broken(0.3) == ()


def test_a_request_is_tried_again_on_another_instance_not_on_another_rank() -> None:
    live = scheduler(ranked(2), "fairlead", window=0)
    (sent,) = dispatches(live.submit(request("r", 2_000), 0.0))
    live.instance_failed(sent.instance, 0.1, Fault.STATUS, "r")
    again = live.retry("r", 0.1, sent.instance)
    assert isinstance(again, Dispatch) and instance_of(again.instance) != instance_of(sent.instance)
    assert isinstance(live.retry("r", 0.2, again.instance), Refusal)


def test_no_other_rank_gives_a_second_opinion() -> None:
    live = scheduler(ranked(1), "fairlead", window=0)
    (sent,) = dispatches(live.submit(request("r", 2_000), 0.0))
    assert live.second_opinion("r", 0.1, sent.instance, counts=True) is None


def test_a_request_for_some_instances_goes_to_any_of_their_ranks() -> None:
    live = scheduler(ranked(3), "fairlead", window=0)
    asked = replace(request("r", 2_000), within=("i02",))
    (sent,) = dispatches(live.submit(asked, 0.0))
    assert instance_of(sent.instance) == "i02" and rank_of(sent.instance) is not None


def test_ranks_that_become_known_while_a_circuit_is_open_are_out_too() -> None:
    live = scheduler(2, "round-robin", window=0)
    for _ in range(3):
        live.instance_failed("i00", 0.0, Fault.UNREACHED)
    live.update_table(replace(table(ranked(2), policy="round-robin", window=0), version=2), 0.1)
    sent = [one for number in range(16) for one in dispatches(live.submit(request(f"r{number}"), 0.2))]
    assert {instance_of(one.instance) for one in sent} == {"i01"}


def test_an_answer_of_a_rank_that_became_known_meanwhile_closes_the_circuit_of_its_instance() -> None:
    live = scheduler(1, "round-robin")
    for _ in range(3):
        live.instance_failed("i00", 0.0, Fault.UNREACHED)
    live.update_table(replace(table(ranked(1), policy="round-robin"), version=2), 0.1)
    assert live.broken(0.2) == ("i00",)
    serve(live, request("alone", at=0.2), 0.2)
    assert live.broken(0.3) == () and live.discrepancies() == ()


def test_what_waits_for_an_instance_waits_for_one_of_its_ranks_once_they_are_known() -> None:
    live = scheduler(1, "round-robin")
    for number in range(4):
        live.submit(request(f"r{number}", 4_000), 0.0)
    sent = dispatches(live.update_table(replace(table(ranked(1), policy="round-robin"), version=2), 0.1))
    assert len(sent) == 3 and all(rank_of(one.instance) is not None for one in sent)
    live.first_token("r0", 0.5)
    live.complete("r0", 0.6, 5, None)
    records = live.take_records(5.0)
    assert records.reroutes == () and live.discrepancies() == ()


# ── the ring ──


def owners(ring: HashRing, keys: int = 600) -> Mapping[int, str]:
    found = {number: ring.owner((1, number * 0x9E3779B97F4A7C15 % 2**64)) for number in range(keys)}
    return {number: owner for number, owner in found.items() if owner is not None}


@given(st.integers(1, 5), st.dictionaries(st.integers(0, 4), st.sets(st.integers(0, 9), min_size=2), max_size=5))
def test_a_key_belongs_to_the_same_instance_whatever_is_known_of_ranks(count: int, known: dict[int, set[int]]) -> None:
    instances = entries(count)
    ranks = {f"i0{index}": tuple(sorted(each)) for index, each in known.items()}
    by_instance, by_target = owners(HashRing.of(instances), 100), owners(HashRing.of(targets_of(instances, ranks)), 100)
    assert {key: instance_of(target) for key, target in by_target.items()} == by_instance


@given(st.sets(st.integers(0, 9), min_size=3), st.data())
def test_a_rank_that_is_lost_moves_its_own_keys_only(ranks: set[int], data: st.DataObject) -> None:
    instances, lost = entries(2), data.draw(st.sampled_from(sorted(ranks)))
    before = owners(HashRing.of(targets_of(instances, {"i00": tuple(sorted(ranks))})), 200)
    after = owners(HashRing.of(targets_of(instances, {"i00": tuple(sorted(ranks - {lost}))})), 200)
    moved = {key for key in before if before[key] != after[key]}
    assert moved == {key for key in before if before[key] == target_of("i00", lost)}


def test_every_rank_has_a_place_on_the_ring_even_where_there_are_more_ranks_than_anchors() -> None:
    few = tuple(replace(one, anchors=3) for one in entries(1))
    ring = HashRing.of(targets_of(few, {"i00": tuple(range(64))}))
    assert len(ring.instances) == 64 and set(ring.walk((1, 5))) == set(ring.instances)


def test_the_keys_of_an_instance_are_spread_over_its_ranks() -> None:
    shares = HashRing.of(ranked(4)).shares()
    assert all(0.25 / 8 * 0.3 < share < 0.25 / 8 * 2.2 for share in shares.values())
