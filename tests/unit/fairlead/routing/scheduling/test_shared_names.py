"""A session name that all clients share overloads no instance, and real sessions stay at their homes: for every policy,
on a virtual clock.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.bindings import Binding, BindingReason
from fairlead.reports.decisions import DecisionReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.policies.ear import prefix_session
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_testing.builders.routing import POOL, table
from fairlead_testing.examples import examples

SYSTEM = tuple(range(1, 9))
"""The number of blocks that all conversations have in common."""
POLICIES = [name for name in BUILT_IN.names if not BUILT_IN.entry(name).needs_roles]
BY_NAME = ["ear", "sticky"]


def turn(client: int, number: int, at: float, **names: Any) -> RoutingRequest:
    blocks = (*SYSTEM, *(1000 * (client + 1) + depth for depth in range(2 * number + 2)))
    given = {"session": "default_user_id", "beginning": client + 77, **names}
    if given["session"] == "own":
        given["session"] = f"own-{client}"
    return RoutingRequest(
        id=f"c{client}-{number}", arrived_at=at, prompt_tokens=512 * len(blocks), blocks=blocks, first_bytes_hash=blocks[0], **given
    )


class World:
    """Clients that each send their next turn when the last one is answered. `placed` has the instance of each
    request.
    """

    def __init__(self, policy: str, instances: int, sample_rate: float = 1.0) -> None:
        self.scheduler = PoolScheduler(table(instances, policy=policy, window=4), "router-0", 7, sample_rate=sample_rate)
        self.placed: dict[str, str] = {}
        self.reasons: dict[str, DecisionReason] = {}

    def run(self, clients: int, turns: int, *, pause: float = 0.05, lasts: float = 2.0, **names: Any) -> None:
        events: list[tuple[float, int, str, int, int]] = []
        order = iter(range(1_000_000))
        for client in range(clients):
            heappush(events, (0.13 * client, next(order), "ask", client, 0))
        while events:
            now, _, what, client, number = heappop(events)
            if what == "ask":
                outcomes = self.scheduler.submit(turn(client, number, now, **names), now)
            elif what == "first":
                outcomes = self.scheduler.first_token(f"c{client}-{number}", now)
            else:
                outcomes = self.scheduler.complete(f"c{client}-{number}", now, 100, None)
                if number + 1 < turns:
                    heappush(events, (now + pause, next(order), "ask", client, number + 1))
            for sent in (*outcomes, *self.scheduler.tick(now)):
                assert isinstance(sent, Dispatch), sent
                self.placed[sent.request.id] = sent.instance
                self.reasons[sent.request.id] = sent.reason
                of, at = (int(part) for part in sent.request.id[1:].split("-"))
                heappush(events, (now + 0.4, next(order), "first", of, at))
                heappush(events, (now + lasts, next(order), "end", of, at))
        assert self.scheduler.discrepancies() == ()

    def busiest(self) -> float:
        return max(Counter(self.placed.values()).values()) / len(self.placed)

    def homes(self, client: int) -> set[str]:
        return {instance for request, instance in self.placed.items() if request.startswith(f"c{client}-")}


@pytest.mark.parametrize("policy", POLICIES)
@examples(8)
@given(clients=st.integers(12, 24), instances=st.integers(2, 4), pause=st.sampled_from([0.0, 0.3, 2.0]))
def test_one_name_for_all_clients_piles_up_on_no_instance(policy: str, clients: int, instances: int, pause: float) -> None:
    one, own = World(policy, instances), World(policy, instances)
    one.run(clients, 6, pause=pause)
    own.run(clients, 6, pause=pause, session="own")
    assert one.busiest() <= max(0.65, own.busiest() + 0.1), (one.busiest(), own.busiest())


@pytest.mark.parametrize("policy", BY_NAME)
@pytest.mark.parametrize("clients", [3, 4, 5, 12])
def test_clients_of_one_name_are_sessions_of_their_own_once_that_is_found(policy: str, clients: int) -> None:
    world = World(policy, 3)
    world.run(clients, 8)
    assert world.busiest() < 0.75
    settled = {client: {world.placed[f"c{client}-{number}"] for number in range(4, 8)} for client in range(clients)}
    assert all(len(homes) == 1 for homes in settled.values())
    assert DecisionReason.SESSION_NAME_SHARED in world.reasons.values()


@pytest.mark.parametrize("policy", BY_NAME)
def test_prompts_of_many_that_begin_with_one_system_text_do_not_pile_up_either(policy: str) -> None:
    world = World(policy, 3)
    world.run(12, 6, session=None)
    assert world.busiest() < 0.7


@pytest.mark.parametrize("policy", BY_NAME)
def test_requests_of_one_name_that_tell_nothing_of_how_they_begin_are_spread(policy: str) -> None:
    world = World(policy, 3)
    world.run(12, 6, beginning=0)
    assert world.busiest() < 0.6


@pytest.mark.parametrize("policy", [name for name in POLICIES if BUILT_IN.keeps_homes(table(1, policy=name).routing)])
def test_a_session_of_turns_stays_bound_and_so_does_one_with_a_few_parallel_calls(policy: str) -> None:
    world = World(policy, 3)
    world.run(1, 12)
    scheduler, now = world.scheduler, 100.0
    for step in range(12, 40):
        now += 3.0
        calls = [turn(0, step, now, beginning=77 + (part == 3)) for part in range(4)]
        for part, call in enumerate(calls):
            scheduler.submit(replace(call, id=f"{call.id}-{part}"), now)
        for part, call in enumerate(calls):
            scheduler.first_token(f"{call.id}-{part}", now + 0.5)
            scheduler.complete(f"{call.id}-{part}", now + 1.0, 100, None)
    assert scheduler.binding("default_user_id") is not None
    assert scheduler.binding("conversation:000000000000004d") is None
    assert not any(change.shared for change in scheduler.take_records(now).bindings)


def shared_by(names: Sequence[str | None]) -> Iterator[RoutingRequest]:
    for number, name in enumerate(names):
        yield turn(number, 1, 0.1 * number, further_names=() if name is None else (name,))


def test_the_next_name_of_a_request_counts_before_how_it_begins() -> None:
    world = World("ear", 3)
    for request in shared_by([*(f"alice-{number}" for number in range(8)), None]):
        world.scheduler.submit(request, request.arrived_at)
    assert world.scheduler.binding("alice-7") is not None
    assert world.scheduler.binding("conversation:0000000000000055") is not None
    assert world.scheduler.binding("default_user_id") is None


def test_a_decision_tells_the_shared_name_and_the_session_it_went_by_and_the_name_is_given_up_once() -> None:
    world = World("fairlead", 3)
    world.run(12, 4)
    records = world.scheduler.take_records(60.0, final=True)
    by_request = {decision.request: decision for decision in records.decisions}
    assert (by_request["c0-0"].session, by_request["c0-0"].named) == ("default_user_id", None)
    assert (by_request["c11-3"].session, by_request["c11-3"].named) == ("conversation:0000000000000058", "default_user_id")
    (given_up,) = [change for change in records.bindings if change.shared]
    assert given_up.session == "default_user_id"
    assert given_up.previous == given_up.instance
    assert world.scheduler.load("i00") is not None
    assert sum(load.sessions for load in world.scheduler.loads()) == len(
        {change.session for change in records.bindings} - {"default_user_id"}
    )


def test_a_name_that_another_router_found_shared_binds_nothing_here() -> None:
    scheduler = PoolScheduler(table(3, policy="ear"), "router-1", 7)
    told = Binding(
        pool=POOL,
        session="default_user_id",
        instance=None,
        version=1,
        reason=BindingReason.COLD,
        bound_at=0.0,
        migrated_at=None,
        shared_at=1.0,
    )
    scheduler.apply_bindings([told], 1.0)
    scheduler.submit(turn(0, 0, 2.0), 2.0)
    assert scheduler.binding("default_user_id") is None
    assert scheduler.binding("conversation:000000000000004d") is not None


def test_plain_requests_are_not_looked_at_by_policies_that_bind_names_only() -> None:
    scheduler = PoolScheduler(table(3, policy="fairlead"), "router-1", 7)
    scheduler.submit(turn(0, 0, 2.0, session=None), 2.0)
    assert not len(scheduler._state.names)


def test_a_prefix_stands_for_a_session_while_only_one_conversation_has_it() -> None:
    world = World("sticky", 3)
    world.run(1, 5, session=None)
    assert len(set(world.placed.values())) == 1
    assert world.scheduler.binding(prefix_session(turn(0, 0, 0.0))) is not None
