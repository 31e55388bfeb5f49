"""The work beyond a tenant's turn, for one instance and for many, equals a plain sum over its requests."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import floor

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.contracts.requests import Overtaken, RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.contracts.vectors import FloatVector
from fairlead.routing.queues.accounting import Stage, TrackedRequest
from fairlead.routing.queues.turns import Tenants, Turns
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_testing.builders.routing import request, table
from fairlead_testing.examples import examples

INSTANCES = ("i0", "i1", "i2")
TENANTS = ("a", "b", "c", "d", "e", "f")


def plainly(waiting: list[TrackedRequest], turns: Turns, tenant: str) -> Overtaken:
    """Return the share of each tenant's waiting work that lies beyond the place of a request of `tenant`, in exact
    fractions.

    A tenant's work is spread evenly from the service it has had to that it will have had with all of this work.
    """

    def beyond(point: float, requests: list[TrackedRequest], weight: str) -> Fraction:
        found = Fraction(0)
        for name in {one.request.tenant for one in requests}:
            own = [one for one in requests if one.request.tenant == name]
            work = sum(one.work_microseconds for one in own)
            left = min(max(turns.served(name) + work - int(point), 0), work)
            if work:
                found += Fraction(left * (len(own) if weight == "requests" else sum(one.prefill_microseconds for one in own)), work)
        return found

    able_point, point = turns.points(tenant)
    everything = floor(beyond(point, waiting, "microseconds"))
    able = min(everything, floor(beyond(able_point, [one for one in waiting if not one.late], "microseconds")))
    return Overtaken(floor(beyond(point, waiting, "requests")), everything, everything - able)


class Pool:
    """The turns of some instances, and the requests that wait for them."""

    def __init__(self, credit_seconds: float) -> None:
        self.tenants = Tenants(credit_seconds)
        self.waiting: defaultdict[str, list[TrackedRequest]] = defaultdict(list)

    def add(self, instance: str, tenant: str, microseconds: int, answer: int) -> None:
        asked = RoutingRequest(id="r", arrived_at=0.0, prompt_tokens=1, blocks=(), first_bytes_hash=0, tenant=tenant)
        tracked = TrackedRequest(request=asked, submitted_at=0.0, prefill_microseconds=microseconds, answer_microseconds=answer)
        self.waiting[instance].append(tracked)
        self.tenants.turns(instance).waits(tracked)

    def leave(self, instance: str, place: int, *, sent: bool) -> None:
        tracked = self.waiting[instance].pop(place % len(self.waiting[instance]))
        turns = self.tenants.turns(instance)
        if sent:
            turns.sent(tracked, late=tracked.late)
        else:
            turns.leaves(tracked, late=tracked.late)

    def find_late(self, instance: str, place: int) -> None:
        tracked = self.waiting[instance][place % len(self.waiting[instance])]
        if not tracked.late:
            tracked.late = True
            self.tenants.turns(instance).found_late(tracked)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "send", "remove", "late"]),
        st.sampled_from(INSTANCES[:2]),
        st.sampled_from(TENANTS),
        st.integers(0, 3_000_000),
        st.integers(0, 99),
    ),
    min_size=1,
    max_size=60,
)


@given(STEPS, st.sampled_from([0, 700_000]), st.sampled_from([0.0, 2.0]))
def test_what_lies_beyond_a_turn_is_the_sum_of_the_tenants_shares(
    steps: list[tuple[str, str, str, int, int]], answer: int, credit: float
) -> None:
    pool = Pool(credit)
    for what, instance, tenant, microseconds, place in steps:
        if what == "add":
            pool.add(instance, tenant, microseconds, answer)
        elif pool.waiting[instance]:
            if what == "late":
                pool.find_late(instance, place)
            else:
                pool.leave(instance, place, sent=what == "send")
    for tenant in (*TENANTS, "new"):
        told = [pool.tenants.turns(instance).overtaken_by(tenant) for instance in INSTANCES]
        plain = [plainly(pool.waiting[instance], pool.tenants.turns(instance), tenant) for instance in INSTANCES]
        if answer:  # then shares are not whole microseconds
            np.testing.assert_allclose(told, plain, atol=1.0)
        else:
            assert [one[1:] for one in told] == [one[1:] for one in plain]
        assert pool.tenants.of_rank(0).all_beyond(tenant, INSTANCES).tolist() == [one.microseconds for one in told]
        assert pool.tenants.of_rank(0).able_beyond(tenant, INSTANCES).tolist() == [one.microseconds - one.late_microseconds for one in told]


def test_an_instance_that_is_gone_leaves_its_row_to_the_next() -> None:
    pool = Pool(0.0)
    for instance in INSTANCES:
        pool.add(instance, "a", 1_000_000, 0)
    pool.leave("i1", 0, sent=True)
    pool.tenants.forget("i1")
    pool.tenants.forget("never known")
    pool.add("i9", "b", 2_000_000, 0)
    asked = ("i0", "i1", "i2", "i9", "unknown")
    assert pool.tenants.of_rank(0).all_beyond("new", asked).tolist() == [1_000_000, 0, 1_000_000, 2_000_000, 0]
    assert pool.tenants.of_rank(0).able_beyond("b", asked[::-1]).tolist() == [0, 0, 1_000_000, 0, 1_000_000]
    assert pool.tenants.of_rank(1).all_beyond("new", asked).tolist() == [0] * 5


class Plainly:
    """An `Overtaking` that sums up the requests in a scheduler's accounts."""

    def __init__(self, scheduler: PoolScheduler, asked: RoutingRequest) -> None:
        self._state = scheduler._state
        self._asked = asked

    def at(self, instance: str) -> Overtaken:
        assert self._state.tenants is not None
        waiting = [one for one in self._state.requests.values() if one.stage is Stage.QUEUED and one.instance == instance]
        return plainly(waiting, self._state.tenants.turns(instance), self._asked.tenant)

    def microseconds(self, instances: Sequence[str]) -> FloatVector:
        return np.array([float(self.at(instance).microseconds) for instance in instances])

    def microseconds_in_time(self, instances: Sequence[str]) -> FloatVector:
        found = [self.at(instance) for instance in instances]
        return np.array([float(one.microseconds - one.late_microseconds) for one in found])


def sent_of(arrivals: list[tuple[int, str, int]], policy: str, *, plain: bool) -> list[tuple[str, str]]:
    """Return (request, instance) in the order of sending.

    The requests are (ticks of 0.1 s after the one before, tenant, tokens). Four instances prefill 6,250 tokens a second
    each.
    """
    shared = table(4, policy=policy)
    scheduler = PoolScheduler(replace(shared, routing=replace(shared.routing, fairness="Tenants")), "router-0", 0)
    if plain:
        known = scheduler._state.overtaking
        scheduler._state.view.overtaking = lambda asked: None if known(asked) is None else Plainly(scheduler, asked)
    sent: list[tuple[str, str]] = []
    due: list[tuple[float, str]] = []
    tick = 0

    def see(outcomes: tuple[object, ...]) -> None:
        for one in outcomes:
            if isinstance(one, Dispatch):
                sent.append((one.request.id, one.instance))
                due.append((tick / 10 + one.miss_tokens / 6250, one.request.id))

    def pass_time() -> None:
        nonlocal tick
        tick += 1
        for entry in sorted(one for one in due if one[0] <= tick / 10):
            due.remove(entry)
            see(scheduler.first_token(entry[1], tick / 10))
            see(scheduler.complete(entry[1], tick / 10, 10, None))
        see(scheduler.tick(tick / 10))

    for number, (later, tenant, tokens) in enumerate(arrivals):
        for _ in range(later):
            pass_time()
        see(scheduler.submit(replace(request(f"r{number}", tokens, at=tick / 10), tenant=tenant), tick / 10))
    for _ in range(300):
        if not due:
            break
        pass_time()
    return sent


ARRIVALS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(TENANTS), st.integers(100, 20_000)), min_size=10, max_size=60)


@examples(25)
@given(ARRIVALS, st.sampled_from(["fairlead", "dualmap", "min-ttft"]))
def test_requests_go_where_and_when_the_plain_sum_sends_them(arrivals: list[tuple[int, str, int]], policy: str) -> None:
    assert sent_of(arrivals, policy, plain=False) == sent_of(arrivals, policy, plain=True)
