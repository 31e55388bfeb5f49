"""Tickets and pools over a scheduler that checks that each request is ended exactly once."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.capabilities import UNKNOWN, EngineCapability, Figure
from fairlead.errors import InvalidInput
from fairlead.kv_events.engine_caches import EngineCaches
from fairlead.reports.bindings import Binding, BindingChange
from fairlead.reports.engines import EngineMemory
from fairlead.reports.loads import HeldDemand, InstanceInFlight
from fairlead.reports.moves import CacheTransfer
from fairlead.reports.rejections import RejectionReason
from fairlead.reports.shares import OthersShare, PoolShare
from fairlead.routing.contracts.copies import KeptTurn, PrefixCopy
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.estimates import EstimateReport
from fairlead.routing.contracts.faults import Fault
from fairlead.routing.contracts.handovers import Handovers
from fairlead.routing.contracts.loads import GivenWork
from fairlead.routing.contracts.policies import LearnsOnline
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, PrefixMemory, Refusal, SchedulerRecords
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import PoolKey, RoutingTable
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.gateway.informing import Informing
from fairlead_router.metrics.metrics import RouterMetrics, render
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_router.protocols.answers import StreamReader, Usage
from fairlead_router.protocols.refusals import BadRequest
from fairlead_testing.builders.routing_tables import CHAT, routing_table

OTHER = PoolKey(namespace="default", name="zeta")

NOTHING_LEARNT = EstimateReport(form="configured", samples=0, in_use=False, seconds_per_token=None, error=None, declared_error=None)


def _check(table: RoutingTable) -> None:
    if table.routing.policy == "bad":
        raise InvalidInput("spec.routing.policy", "bad", "use another")
    if table.routing.policy == "failing":
        raise ZeroDivisionError("in somebody's own policy")


class CheckingScheduler:
    """Dispatches at once while fewer than `slots` are dispatched, else queues; refuses ids in `refuse`.

    Fails on any second end.
    """

    def __init__(self, table: RoutingTable, slots: int = 2) -> None:
        _check(table)
        self.table = table
        self.caches = EngineCaches()
        self.handovers = Handovers()
        self.learns_online: LearnsOnline | None = None
        self.binds_beginnings = False
        self.assumed_routers = 1
        self.slots = slots
        self.routers = 0
        self.refuse: set[str] = set()
        self.queue: list[RoutingRequest] = []
        self.dispatched: dict[str, RoutingRequest] = {}
        self.ended: dict[str, str] = {}
        self.bindings: list[Binding] = []
        self.told: list[tuple[str, float, int]] = []
        """Times and numbers of tokens reported, by request."""
        self.strays: list[Dispatch | Refusal] = []
        """Verdicts for which no request waits; they are reported with the next tick."""

    def _dispatch(self, request: RoutingRequest) -> Dispatch:
        self.dispatched[request.id] = request
        return Dispatch(
            request=request,
            instance="i0",
            address="127.0.0.1:1",
            fallbacks=(),
            decision_id="d",
            reason=DecisionReason.ROUND_ROBIN,
            hit_tokens=0,
            miss_tokens=1,
        )

    def _refuse(self, request: RoutingRequest) -> Refusal:
        self._end(request.id, "refused")
        return Refusal(request=request, reason=RejectionReason.QUEUE_FULL, status=429, retry_after_seconds=1.0, message="full")

    def _end(self, request_id: str, how: str) -> None:
        assert request_id not in self.ended, f"{request_id} ended twice"
        self.ended[request_id] = how
        self.dispatched.pop(request_id, None)
        self.queue = [request for request in self.queue if request.id != request_id]

    def _drain(self) -> tuple[Dispatch | Refusal, ...]:
        answers: list[Dispatch | Refusal] = []
        while self.queue and len(self.dispatched) < self.slots:
            answers.append(self._dispatch(self.queue.pop(0)))
        return tuple(answers)

    def submit(self, request: RoutingRequest, now: float) -> tuple[Dispatch | Refusal, ...]:
        if request.id in self.refuse:
            return (self._refuse(request),)
        self.queue.append(request)
        return self._drain()

    def tick(self, now: float) -> tuple[Dispatch | Refusal, ...]:
        strays, self.strays = self.strays, []
        return (*strays, *self._drain())

    def prefilled(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        assert request_id in self.dispatched
        return ()

    def first_token(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        assert request_id in self.dispatched
        return ()

    def copy_due(self, turns: Iterable[KeptTurn], now: float) -> PrefixCopy | None:
        return None

    def copied(self, copy: PrefixCopy, transfer: CacheTransfer, now: float) -> None:
        raise AssertionError("nothing was to be copied")

    def generated(self, request_id: str, now: float, output_tokens: int) -> None:
        assert request_id in self.dispatched
        self.told.append((request_id, now, output_tokens))

    def complete(self, request_id: str, now: float, output_tokens: int, cached_tokens: int | None) -> tuple[Dispatch | Refusal, ...]:
        self._end(request_id, "completed")
        return self._drain()

    def retry(
        self, request_id: str, now: float, failed_instance: str, *, reached: bool = True, to: str | None = None
    ) -> Dispatch | Refusal:
        request = self.dispatched[request_id]
        return self._refuse(request) if request_id in self.refuse else self._dispatch(request)

    def attempt_failed(self, request_id: str, instance: str, failure: str, now: float) -> None: ...

    def keep_sessions(self, sessions: Mapping[str, float]) -> None: ...

    def fail(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        self._end(request_id, "failed")
        return self._drain()

    def cancel(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        self._end(request_id, "cancelled")
        return self._drain()

    def decline(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        self._end(request_id, "declined")
        return self._drain()

    def transferred(self, request_id: str, now: float, transfer: CacheTransfer | None = None) -> None: ...

    def carry_on(
        self, request_id: str, now: float, left: str, *, carried_tokens: int, why: str, unlike: str | None = None
    ) -> Dispatch | None:
        return None

    def can_carry_on(self, request_id: str, now: float, left: str) -> bool:
        return False

    def second_opinion(
        self, request_id: str, now: float, instance: str, *, counts: bool, reached: bool = True, beyond: Collection[str] = ()
    ) -> Dispatch | None:
        return None

    def instance_failed(self, instance: str, now: float, fault: Fault = Fault.UNREACHED, request_id: str | None = None) -> None: ...

    def instance_heard(self, instance: str, now: float) -> None: ...

    def instance_worked(self, instance: str, now: float) -> None: ...

    def instance_stalled(self, instance: str, now: float, *, stalled: bool) -> None: ...

    def take_given(self, instance: str) -> GivenWork:
        return GivenWork(requests=0)

    def broken(self, now: float) -> tuple[str, ...]:
        return ()

    def observe_engine(self, target: str, kv_usage: float | None, now: float, waiting: int | None = None) -> None: ...

    def prefill_estimate(self, instance: str | None = None) -> EstimateReport:
        return NOTHING_LEARNT

    def decode_estimate(self, instance: str | None = None) -> EstimateReport:
        return NOTHING_LEARNT

    def prefill_figure(self, now: float, instance: str | None = None) -> Figure:
        return UNKNOWN

    def decode_figure(self, now: float, instance: str | None = None) -> Figure:
        return UNKNOWN

    def update_table(self, table: RoutingTable, now: float) -> tuple[Dispatch | Refusal, ...]:
        _check(table)
        self.table = table
        if not table.instances:
            return tuple(self._refuse(request) for request in tuple(self.queue))
        return ()

    def apply_bindings(self, bindings: Sequence[Binding], now: float, lost: Collection[str] = ()) -> int:
        self.bindings.extend(bindings)
        return len(lost)

    def recall_changes(self, changes: Sequence[BindingChange], now: float) -> None: ...

    def report_missing(self, sessions: Collection[str], now: float) -> int:
        return 0

    def prefix_memories(self, now: float) -> tuple[PrefixMemory, ...]:
        return ()

    def recall_prefixes(self, memories: Iterable[PrefixMemory], now: float) -> int:
        return 0

    def engine_memory(self, now: float) -> EngineMemory:
        return EngineMemory(pool=self.table.pool, uid=self.table.uid, model="", at=now, counted_by=4.0, known=EngineCapability())

    def recall_engines(self, memory: EngineMemory | None, now: float) -> None: ...

    def know_routers(self, count: int) -> None:
        self.routers = count

    def share(self, why: str, now: float) -> PoolShare | None: ...

    def know_others(self, share: OthersShare, now: float) -> None: ...

    def give_up(self, request_id: str, now: float) -> tuple[Refusal, ...]:
        return tuple(self._refuse(request) for request in tuple(self.queue) if request.id == request_id)

    def shut_down(self, now: float) -> tuple[Refusal, ...]:
        return tuple(self._refuse(request) for request in tuple(self.queue))

    def held(self) -> HeldDemand:
        return HeldDemand()

    def in_flight(self) -> tuple[InstanceInFlight, ...]:
        return ()

    def carried(self) -> tuple[InstanceInFlight, ...]:
        return ()

    def take_records(self, now: float, *, samples: bool = True, final: bool = False) -> SchedulerRecords:
        return SchedulerRecords(bindings=(), migrations=(), migration_outcomes=(), decisions=(), rejections=(), loads=())


def _request(name: str) -> RoutingRequest:
    return RoutingRequest(id=name, arrived_at=0.0, prompt_tokens=1, blocks=(), first_bytes_hash=0)


def _pool(slots: int = 2) -> tuple[Pool, CheckingScheduler]:
    table = routing_table(["127.0.0.1:1"])
    scheduler = CheckingScheduler(table, slots)
    return Pool(table, scheduler, RouterMetrics(), 0.0), scheduler


ACTIONS = ("submit", "submit-refused", "first_token", "complete", "fail", "decline", "cancel", "retry", "retry-refused", "tick")


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 30)), max_size=60))
def test_every_request_ends_once_whatever_happens_in_whatever_order(steps: list[tuple[str, int]]) -> None:
    pool, scheduler = _pool()
    tickets = []
    for number, (action, choice) in enumerate(steps):
        if action.startswith("submit"):
            name = f"r{number}"
            if action == "submit-refused":
                scheduler.refuse.add(name)
            tickets.append(pool.account.submit(_request(name), 1.0))
        elif action == "tick":
            pool.tick(1.0)
        elif tickets:
            ticket = tickets[choice % len(tickets)]
            if action == "first_token" and ticket.request.id in scheduler.dispatched:
                pool.account.first_token(ticket, 1.0)
            elif action == "complete" and (ticket.ended or ticket.request.id in scheduler.dispatched):
                pool.account.complete(ticket, 1.0, Usage(1))
            elif action == "fail":
                pool.account.fail(ticket, 1.0)
            elif action == "decline":
                pool.account.decline(ticket, 1.0)
            elif action == "cancel":
                pool.account.cancel(ticket, 1.0)
            elif action.startswith("retry") and not ticket.ended and isinstance(ticket.verdict, Dispatch):
                if action == "retry-refused":
                    scheduler.refuse.add(ticket.request.id)
                pool.account.retry(ticket, "i0", 1.0, reached=True)
        assert pool.account.waiting == len(scheduler.queue)
        assert pool.account.tickets.keys() == scheduler.dispatched.keys() | {request.id for request in scheduler.queue}
    for ticket in tickets:
        pool.account.cancel(ticket, 2.0)
    assert not pool.account.tickets
    assert pool.account.waiting == 0
    assert scheduler.ended.keys() == {ticket.request.id for ticket in tickets}
    counters = pool.counters
    ended = counters.served + counters.failed + counters.cancelled + counters.rejected_by_engine + sum(counters.refused.values())
    assert ended == len(tickets)
    assert pool.metrics.accounting_errors == 0


@pytest.mark.parametrize("told", [-1, 2**63])
def test_token_counts_that_cannot_be_are_taken_as_unknown_and_counted(told: int) -> None:
    pool, _ = _pool()
    pool.account.complete(pool.account.submit(_request("r"), 1.0), 2.0, Usage(told, told, told))
    assert (pool.counters.served, pool.counters.output_tokens, pool.counters.implausible_usages) == (1, 0, 3)


def test_tokens_learnt_from_engines_count_the_next_prompts_and_survive_a_newer_table() -> None:
    pool, scheduler = _pool()
    for number in range(30):
        request = RoutingRequest(id=str(number), arrived_at=0.0, prompt_tokens=1000, blocks=(), first_bytes_hash=0, prompt_bytes=4000)
        pool.account.complete(pool.account.submit(request, 1.0), 2.0, Usage(1, None, 2000))
    assert pool.token_sizes.tokens(8000) == 4000
    assert scheduler.table.engine.block_tokens == 1024
    assert scheduler.table.version == pool.table.version
    pool.update(routing_table(["127.0.0.1:1"], version=2), 3.0)
    assert (scheduler.table.version, scheduler.table.engine.block_tokens) == (2, 1024)
    pool.update(replace(routing_table(["127.0.0.1:1"], version=3), model="another"), 4.0)
    assert scheduler.table.engine.block_tokens == 512


def test_tokens_of_streams_are_told_once_a_second_and_when_a_stream_is_lost() -> None:
    pool, scheduler = _pool()
    ticket, unstreamed = pool.account.submit(_request("a"), 10.0), pool.account.submit(_request("b"), 10.0)
    ticket.stream = StreamReader()
    for now in (10.0, 10.5, 11.0, 11.5):
        ticket.stream.feed(b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n')
        pool.tick(now)
    pool.account.fail(ticket, 11.75)
    pool.account.cancel(unstreamed, 11.75)
    assert scheduler.told == [("a", 10.0, 1), ("a", 11.0, 3), ("a", 11.75, 4)]


def test_shutting_down_refuses_what_waits_and_lets_the_rest_finish() -> None:
    pools = _pools()
    pools.apply(routing_table(["a"]))
    pool = pools.all()[0]
    tickets = [pool.account.submit(_request(f"r{number}"), 1.0) for number in range(4)]
    pools.shut_down()
    assert [isinstance(ticket.verdict, Refusal) for ticket in tickets] == [False, False, True, True]
    assert sum(pool.counters.refused.values()) == 2
    pool.account.complete(tickets[0], 2.0, Usage(1))
    assert pool.counters.served == 1


async def test_a_queued_request_waits_for_its_dispatch() -> None:
    pool, _ = _pool(slots=1)
    first = pool.account.submit(_request("a"), 1.0)
    second = pool.account.submit(_request("b"), 1.0)
    assert second.verdict is None
    pool.account.complete(first, 2.0, Usage(3))
    assert isinstance(await second.decided(), Dispatch)
    assert second.dispatched_at == 2.0


def test_prompt_tokens_are_counted_with_the_hits_when_a_request_is_sent_first() -> None:
    pool, scheduler = _pool(slots=1)
    scheduler.refuse.add("refused")
    first = pool.account.submit(_request("a"), 1.0)
    for name in ("waiting", "refused"):
        pool.account.submit(_request(name), 1.0)
    assert pool.counters.prompt_tokens == 1
    pool.account.retry(first, "i0", 2.0, reached=True)
    assert pool.counters.prompt_tokens == 1
    pool.account.complete(first, 3.0, Usage(3))
    assert pool.counters.prompt_tokens == 2


def test_time_lost_at_engines_that_failed_is_no_time_in_the_queue() -> None:
    pool, _ = _pool(slots=1)
    first = pool.account.submit(_request("a"), 0.0)
    ticket = pool.account.submit(_request("b"), 0.0)
    pool.account.complete(first, 2.0, Usage(3))
    pool.account.retry(ticket, "i0", 30.0, reached=True)
    assert (ticket.queued_seconds, ticket.dispatched_at) == (2.0, 30.0)


def test_the_scheduler_alone_bounds_the_retries_and_its_refusal_ends_the_ticket() -> None:
    pool, scheduler = _pool()
    ticket = pool.account.submit(_request("a"), 1.0)
    for _ in range(20):
        assert isinstance(pool.account.retry(ticket, "i0", 1.0, reached=True), Dispatch)
    scheduler.refuse.add("a")
    assert isinstance(pool.account.retry(ticket, "i0", 1.0, reached=True), Refusal)
    assert ticket.ended
    assert scheduler.ended == {"a": "refused"}
    assert pool.counters.retries == 20
    assert pool.counters.failed == 0


def test_a_verdict_nobody_waits_for_is_counted_and_taken_back() -> None:
    pool, scheduler = _pool()
    stray = scheduler._dispatch(_request("stray"))
    scheduler.strays.append(stray)
    pool.tick(1.0)
    assert pool.metrics.accounting_errors == 1
    assert scheduler.ended == {"stray": "cancelled"}


def _pools() -> Pools:
    return Pools(CheckingScheduler, RouterMetrics(), lambda: 1.0)


def test_requests_find_their_pool_by_key_by_model_and_by_header() -> None:
    pools = _pools()
    assert pools.apply(routing_table(["127.0.0.1:1"], pool=OTHER))
    assert pools.apply(routing_table(["127.0.0.1:1"]))
    assert pools.resolve("mock", None).key == CHAT
    assert pools.resolve("mock", "default/zeta").key == OTHER
    assert pools.resolve("default/zeta", "default/chat").key == OTHER
    with pytest.raises(BadRequest, match="known: mock") as unknown:
        pools.resolve("gpt", None)
    assert (unknown.value.status, unknown.value.param) == (404, "model")
    with pytest.raises(BadRequest, match="use one of default/chat, default/zeta") as wrong:
        pools.resolve("mock", "default/none")
    assert wrong.value.status == 404


def test_only_newer_tables_are_taken_and_bad_ones_change_nothing() -> None:
    pools = _pools()
    assert pools.apply(routing_table(["127.0.0.1:1"], version=4))
    assert not pools.apply(routing_table(["127.0.0.1:9"], version=4))
    assert not pools.apply(routing_table(["127.0.0.1:9"], version=5, policy="bad"))
    assert not pools.apply(routing_table(["127.0.0.1:9"], pool=OTHER, policy="bad"))
    (pool,) = pools.all()
    assert pool.table.version == 4
    assert pool.table.instances[0].address == "127.0.0.1:1"
    assert pools.acknowledgements()[0].version == 4


def test_a_policy_that_fails_on_a_table_costs_that_table_alone(caplog: pytest.LogCaptureFixture) -> None:
    pools = _pools()
    assert pools.apply(routing_table(["127.0.0.1:1"], version=4))
    assert not pools.apply(routing_table(["127.0.0.1:9"], version=5, policy="failing"))
    assert not pools.apply(routing_table(["127.0.0.1:9"], pool=OTHER, policy="failing"))
    refused = [record for record in caplog.records if record.message == "routing table refused"]
    assert [record.exc_info is not None for record in refused] == [True, True]
    (pool,) = pools.all()
    assert (pool.table.version, pool.metrics.tables_refused) == (4, 2)
    assert pools.apply(routing_table(["127.0.0.1:1"], version=6))


async def test_requests_of_a_pool_made_anew_under_its_name_are_counted_with_those_of_the_one_before() -> None:
    metrics = RouterMetrics()
    pools = Pools(lambda table: PoolScheduler(table, "router-0", 1), metrics, lambda: 1.0)
    pools.apply(routing_table(["127.0.0.1:1"], uid="uid-1"))
    pools.all()[0].account.submit(_request("a"), 1.0)
    pools.apply(routing_table(["127.0.0.1:1"], uid="uid-2"))
    for name in ("b", "c"):
        pools.all()[0].account.submit(_request(name), 1.0)
    assert pools.in_flight() == (InstanceInFlight(pool=CHAT, instance="i0", in_flight=3, waiting=0),)
    page = b""

    async def send(message: dict[str, Any]) -> None:
        nonlocal page
        page += message.get("body", b"")

    upstream = UpstreamPool(lambda: 1.0)
    await Informing(pools, upstream, metrics).send_metrics(send)
    assert page.count(b'fairlead_router_in_flight{instance="i0",pool="default/chat"} 3.0') == 1
    assert page.count(b"fairlead_router_in_flight{") == 1


def test_nothing_is_told_of_a_pool_that_is_gone_unless_it_was_made_anew() -> None:
    metrics = RouterMetrics()
    pools = Pools(CheckingScheduler, metrics, lambda: 1.0)
    pools.apply(routing_table(["127.0.0.1:1"], uid="uid-1"))
    metrics.training.rounds["default/chat"] = metrics.training.refused["default/chat", "stale"] = 1
    for uid in ("uid-2", None):
        (pool,) = pools.all()
        pool.counters.served += 1
        if uid is None:
            pools.delete(CHAT)
        else:
            pools.apply(routing_table(["127.0.0.1:1"], uid=uid))
        assert pools.has_ended(pool)
        assert b'"served",pool="default/chat"' in render(metrics).replace(b"outcome=", b"")
        pools.forget(pool)
        assert (b"default/chat" in render(metrics)) is (uid is not None)
    assert (metrics.training.rounds, metrics.training.refused) == ({}, {})


def test_a_pool_whose_policy_fails_as_it_is_deleted_goes_all_the_same() -> None:
    pools = _pools()
    pools.apply(routing_table(["127.0.0.1:1"], version=4))
    (pool,) = pools.all()

    def failing(*_: object) -> tuple[Dispatch, ...]:
        raise ZeroDivisionError

    pool.scheduler.update_table = failing  # type: ignore[method-assign, assignment]
    assert pools.delete(CHAT)
    assert pools.all() == ()
    assert pools.has_ended(pool)


def test_a_pool_made_anew_under_the_same_name_replaces_the_old_one() -> None:
    pools = _pools()
    pools.apply(routing_table(["127.0.0.1:1"], version=9, uid="old"))
    old = pools.all()[0]
    assert pools.apply(routing_table(["127.0.0.1:2"], version=1, uid="new"))
    assert pools.all()[0].table.uid == "new"
    assert old.table.instances == ()


def test_a_pool_whose_scheduler_fails_does_not_stop_the_clock_of_others(caplog: pytest.LogCaptureFixture) -> None:
    pools = _pools()
    pools.apply(routing_table(["127.0.0.1:1"]))
    pools.apply(replace(routing_table(["127.0.0.1:2"], uid="z"), pool=OTHER))
    first, second = pools.all()

    def fails(_now: float) -> None:
        raise ZeroDivisionError("in a policy")

    first.scheduler.tick = fails  # type: ignore[method-assign,assignment]
    for _ in range(3):
        pools.tick()
    assert second.account._ticked_at
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == ["a pool's scheduler failed"]


def test_a_deleted_pool_refuses_what_waits_and_lets_the_rest_finish() -> None:
    pools = _pools()
    pools.apply(routing_table(["127.0.0.1:1"]))
    pool = pools.all()[0]
    running = [pool.account.submit(_request(name), 1.0) for name in ("a", "b")]
    waiting = pool.account.submit(_request("c"), 1.0)
    assert pools.delete(CHAT)
    assert isinstance(waiting.verdict, Refusal)
    assert len(pools) == 0
    assert sum(len(pool.account.tickets) for pool in pools.living()) == 2
    for ticket in running:
        pool.account.complete(ticket, 2.0, Usage(1))
    pools.tick()
    assert pools.has_ended(pool)
    pools.forget(pool)
    assert list(pools.living()) == []
    with pytest.raises(BadRequest):
        pools.resolve("mock", None)


def test_every_pool_knows_how_many_routers_live_also_one_that_comes_later() -> None:
    pools = _pools()
    pools.apply(routing_table(["127.0.0.1:1"]))
    pools.know_routers(3)
    pools.apply(routing_table(["127.0.0.1:2"], pool=OTHER))
    assert [scheduler.routers for pool in pools.all() if isinstance(scheduler := pool.scheduler, CheckingScheduler)] == [3, 3]
    pools.know_routers(0)
    assert [scheduler.routers for pool in pools.all() if isinstance(scheduler := pool.scheduler, CheckingScheduler)] == [1, 1]


def test_as_many_routers_as_before_a_restart_are_assumed_until_the_api_tells() -> None:
    pools = _pools()
    pools.assume_routers(4)
    pools.apply(routing_table(["127.0.0.1:1"]))
    assert [scheduler.routers for pool in pools.all() if isinstance(scheduler := pool.scheduler, CheckingScheduler)] == [4]
    assert pools.routers_told_at is None
    pools.know_routers(2)
    assert pools.routers == 2
    assert pools.routers_told_at is not None


def test_instances_whose_circuit_is_open_get_direct_requests_last() -> None:
    table = routing_table(["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"])
    pool = Pool(table, PoolScheduler(table, "router-0", 1), RouterMetrics(), 0.0)
    for instance in ("i1", "i1", "i2"):
        pool.account.begin_direct(instance, 0.0)
    assert pool.choice.by_load((), 0.0) == ["i0", "i2", "i1"]
    for _ in range(3):
        pool.engine_failed("i0", "refused", 1.0)
    assert pool.choice.by_load((), 1.1) == ["i2", "i1", "i0"]
    assert (pool.choice.least_loaded(("i2",), 1.1), pool.choice.least_loaded(("i1", "i2"), 1.1)) == ("i1", "i0"), "better than nobody"
    assert pool.choice.by_load((), 60.0) == ["i0", "i2", "i1"], "it may have come back"


def test_what_came_to_a_pool_is_recorded_once_it_ended_with_its_tokens_if_it_was_served() -> None:
    pools = Pools(CheckingScheduler, RouterMetrics(), lambda: 1.0, recorded_share=1.0)
    pools.apply(routing_table(["127.0.0.1:1"]))
    (pool,) = pools.all()
    served, gone, _still_running = (pool.account.submit(_request(name), 1.0) for name in ("a", "b", "c"))
    pool.account.complete(served, 2.0, Usage(17))
    pool.account.cancel(gone, 2.0)
    records, _, dropped = pool.account.traffic.take(pool.table)
    assert [record.output_tokens for record in records] == [17, None]
    assert dropped == 0
