"""A router in front of engines whose HTTP server answers while nothing is computed, in virtual time."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.bindings import BindingReason
from fairlead.reports.engines import EngineTrouble
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.knowledge.progress import Life
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.targets import instance_of
from fairlead_process.clock import AwakeClock
from fairlead_router.engines.engine_pages import read_page
from fairlead_router.engines.silences import Silences
from fairlead_router.engines.upstream_connections import UpstreamFailure
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.engine_lives import EngineLives
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.tickets import Ticket
from fairlead_router.protocols.answers import StreamReader
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.relaying.calls import Call, Calls
from fairlead_router.settings import Timeouts
from fairlead_testing.builders.routing_tables import routing_table

P = ParamSpec("P")


def in_loop(test: Callable[P, None]) -> Callable[P, None]:
    """Return the test as a function that runs it within an event loop, which `Calls` needs."""

    @wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        async def inside() -> None:
            test(*arguments, **named)

        asyncio.run(inside())

    return run


TIMEOUTS = Timeouts(connect=2.0, first_byte=300.0, idle=300.0, total=1800.0)
PIECE = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'


@dataclass
class FakeConnection:
    address: str
    received: int = 0
    is_held: bool = False
    failure: UpstreamFailure | None = None

    def abort(self, failure: UpstreamFailure | None = None) -> None:
        self.failure = failure


@dataclass
class Sent:
    """A request at an engine, as the router's proxy keeps it."""

    call: Call
    connection: FakeConnection
    ticket: Ticket

    def token(self) -> None:
        """Deliver a piece of the answer."""
        self.connection.received += 1
        if self.ticket.stream is not None:
            self.ticket.stream.feed(PIECE)


@dataclass
class Stage:
    """A router and its engines, each with the given number of data-parallel ranks.

    A target in `hung` computes nothing, but its metrics page still answers. With `first_rank_serves`, engines ignore
    the header that names a rank.
    """

    instances: int = 3
    ranks: int = 1
    first_rank_serves: bool = False
    now: float = 1000.0
    hung: set[str] = field(default_factory=set)
    asleep: set[str] = field(default_factory=set)
    """Instances whose engines sleep."""
    steps: dict[str, int] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.table = routing_table([f"10.0.0.{number}:8000" for number in range(self.instances)], policy="sticky")
        self.scheduler = PoolScheduler(self.table, "router-0", 1, sample_rate=1.0)
        self.pool = Pool(self.table, self.scheduler, RouterMetrics(), self.now)
        self.awake = AwakeClock(lambda: self.now)
        self.silences = Silences(self.awake)
        self.lives = EngineLives(self.silences, lambda _, instance: self.heard(instance), lambda: self.now)
        self.calls = Calls(TIMEOUTS, self.silences, lambda: self.now, "r", self.lives.moved)
        for entry in self.table.instances:
            self.pool.see_ranks(entry.id, range(self.ranks), self.now)

    def heard(self, instance: str) -> dict[int, int]:
        """Return the KV events by rank."""
        return {rank: self.events.get(target, 0) for rank, target in enumerate(self.pool.targets(instance))}

    def send(self, session: str, *, stream: bool = True, dialect: Dialect = Dialect.OPENAI) -> Sent:
        call = self.calls.new(f"r-{len(self.sent)}", self.now, b"", b"{}", stream=stream, dialect=dialect)
        request = RoutingRequest(id=call.id, arrived_at=self.now, prompt_tokens=100, blocks=(1,), first_bytes_hash=1, session=session)
        call.ticket = ticket = self.pool.account.submit(request, self.now)
        assert isinstance(ticket.verdict, Dispatch)
        connection = FakeConnection(ticket.verdict.address)
        self.calls.enter(call)
        self.calls.await_answer(call, cast(Any, connection))
        made = Sent(call, connection, ticket)
        self.sent.append(made)
        return made

    def begin(self, sent: Sent, *, content: bool = True) -> None:
        """Begin the request's answer."""
        self.calls.began(sent.call)
        if sent.call.stream:
            sent.ticket.stream = StreamReader(sent.call.dialect)
        if content:
            sent.token()
            self.pool.account.first_token(sent.ticket, self.now)

    def page(self, instance: str) -> bytes:
        targets = self.pool.targets(instance)
        running = [self._running(target) for target in targets]
        if self.first_rank_serves:
            running = [sum(running), *[0] * (len(targets) - 1)]
        return "".join(self._of_rank(rank, target, running[rank]) for rank, target in enumerate(targets)).encode()

    def _running(self, target: str) -> int:
        load = self.scheduler.load(target)
        assert load is not None
        return load.prefilling + load.decoding

    def _of_rank(self, rank: int, target: str, running: int) -> str:
        if running and target not in self.hung:
            self.steps[target] = self.steps.get(target, 0) + 20
        steps, label = self.steps.get(target, 0), f'engine="{rank}"'
        awake = "" if instance_of(target) not in self.asleep else f'vllm:engine_sleep_state{{{label},sleep_state="awake"}} 0\n'
        return (
            f"{awake}vllm:num_requests_running{{{label}}} {running}\nvllm:iteration_tokens_total_count{{{label}}} {steps}\n"
            f"vllm:generation_tokens_total{{{label}}} {3 * steps}\nvllm:kv_cache_usage_perc{{{label}}} 0.5\n"
        )

    def second(self, *, looks: int = 4) -> None:
        """Let a second pass in which the router reads its clock this often, sweeps, and reads every engine's page."""
        for _ in range(looks):
            self.now += 1 / looks
            self.awake.look()
        self.calls.sweep()
        self.read()

    def read(self) -> None:
        present = [(self.pool, entry) for entry in self.table.instances]
        self.lives.keep(present)
        for pool, entry in present:
            page = read_page(self.page(entry.id), "vllm", "vllm:kv_cache_usage_perc")
            self.silences.runs(entry.address, page.running or 0)
            self.lives.saw(pool, entry, page)

    def seconds(self, count: int) -> None:
        for _ in range(count):
            self.second()

    def life(self, instance: str) -> Life:
        return self.pool.engines.lives[instance].life

    def hang(self, instance: str) -> None:
        self.hung.add(instance)

    def troubles(self) -> list[tuple[str, str]]:
        return [(one.instance, one.trouble) for one in self.pool.engines.troubled()]


def after_a_while(**of: Any) -> tuple[Stage, Sent, str]:
    """Return a stage in which one request has been answered for a while, and its instance."""
    stage = Stage(**of)
    sent = stage.send("s")
    stage.begin(sent)
    for _ in range(20):
        sent.token()
        stage.second()
    assert isinstance(sent.ticket.verdict, Dispatch)
    return stage, sent, sent.ticket.verdict.instance


@in_loop
def test_an_engine_that_stops_while_its_server_answers_is_found_and_reported() -> None:
    stage, sent, instance = after_a_while()
    assert stage.life(instance) is Life.ACTIVE
    stage.hang(instance)
    stage.seconds(7)
    assert stage.troubles() == [(instance, EngineTrouble.ENGINE_SLOW)]
    stage.seconds(7)
    assert stage.troubles() == [(instance, EngineTrouble.ENGINE_STALLED)]
    assert stage.pool.counters.engine_stalls == 1
    assert sent.connection.failure is not None
    assert sent.connection.failure.kind == "stalled"
    [found] = stage.pool.engines.troubled()
    assert 0 <= found.seconds <= 5
    stage.hung.clear()
    stage.seconds(2)
    assert stage.troubles() == []


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("begun", [True, False])
@in_loop
def test_a_request_without_a_byte_goes_elsewhere_at_once(stream: bool, begun: bool) -> None:
    stage, _, instance = after_a_while()
    stage.hang(instance)
    waiting = stage.send("s", stream=stream)
    assert waiting.ticket.verdict is not None
    if begun:
        stage.begin(waiting, content=False)
    stage.seconds(15)
    failure = waiting.connection.failure
    assert failure is not None
    assert failure.kind == "stalled"
    stage.pool.engine_failed(instance, failure.kind, stage.now, waiting.ticket)
    again = stage.pool.account.retry(waiting.ticket, instance, stage.now, reached=True)
    assert isinstance(again, Dispatch)
    assert again.instance != instance
    [move] = stage.scheduler.take_records(stage.now).migrations
    assert (move.source, move.trigger) == (instance, BindingReason.ENGINE_STALLED)


@in_loop
def test_where_no_other_engine_can_a_request_without_a_byte_waits_on() -> None:
    stage, sent, instance = after_a_while(instances=1)
    stage.hang(instance)
    waiting = stage.send("t")
    stage.seconds(60)
    assert waiting.connection.failure is None
    assert sent.connection.failure is not None, "a part of an answer whose rest does not come is told to its client"


@in_loop
def test_an_answer_whose_tool_parser_holds_it_back_for_half_an_hour_is_left_alone() -> None:
    stage, sent, _ = after_a_while()
    sent.call.deadline = math.inf
    stage.seconds(1800)
    assert sent.connection.failure is None
    assert stage.troubles() == []


@in_loop
def test_an_answer_from_which_tokens_come_is_left_alone_though_metrics_stand_still() -> None:
    stage, sent, instance = after_a_while()
    stage.hang(instance)
    for _ in range(300):
        sent.token()
        stage.second()
    assert sent.connection.failure is None
    assert stage.life(instance) is Life.ACTIVE


@in_loop
def test_comments_that_keep_a_connection_alive_are_no_progress() -> None:
    stage, sent, instance = after_a_while()
    stage.hang(instance)
    for _ in range(15):
        sent.connection.received += 1
        assert sent.ticket.stream is not None
        sent.ticket.stream.feed(b": ping\n\n")
        stage.second()
    assert stage.life(instance) is Life.STALLED


@in_loop
def test_kv_events_are_progress() -> None:
    stage, _, instance = after_a_while()
    stage.hang(instance)
    for number in range(300):
        stage.events[instance] = number
        stage.second()
    assert stage.life(instance) is Life.ACTIVE


@given(pauses=st.lists(st.floats(1.0, 4000.0), min_size=1, max_size=5), busy=st.booleans())
@in_loop
def test_what_the_router_slept_through_is_no_engines_silence(pauses: list[float], busy: bool) -> None:
    """The router is stopped, or its machine suspended, with or without its engines; it reads its clock before a
    page.
    """
    stage, sent, instance = after_a_while()
    sent.call.deadline = math.inf
    for pause in pauses:
        if busy:
            stage.hang(instance)  # together with it
        stage.now += pause
        stage.second(looks=1)
        stage.hung.clear()
        for _ in range(3):
            sent.token()
            stage.second()
    assert stage.pool.counters.engine_stalls == 0
    assert sent.connection.failure is None


@in_loop
def test_an_engine_that_sleeps_on_demand_is_not_judged() -> None:
    stage, _, instance = after_a_while()
    stage.asleep.add(instance)
    stage.hang(instance)
    stage.seconds(120)
    assert stage.life(instance) is Life.UNKNOWN
    assert stage.troubles() == [(instance, EngineTrouble.ENGINE_ASLEEP)], "it is not taken for stalled, which would replace it"


@given(asleep=st.sets(st.integers(0, 2), max_size=2), sessions=st.integers(1, 12))
@in_loop
def test_no_request_goes_to_an_engine_seen_asleep_while_another_is_awake(asleep: set[int], sessions: int) -> None:
    stage = Stage()
    homes = [stage.send(f"before-{number}") for number in range(sessions)]
    sleepers = {stage.table.instances[number].id for number in asleep}
    stage.asleep |= sleepers
    stage.second()
    for number in range(sessions):
        for name in (f"before-{number}", f"new-{number}"):
            verdict = stage.send(name).ticket.verdict
            assert not isinstance(verdict, Dispatch) or verdict.instance not in sleepers
    stage.seconds(2)
    for home in homes:
        assert isinstance(home.ticket.verdict, Dispatch)
        assert (home.connection.failure is not None) is (home.ticket.verdict.instance in sleepers), "what waits there goes on elsewhere"
    stage.asleep.clear()
    stage.second()
    assert stage.troubles() == []


@in_loop
def test_another_engine_in_an_instances_place_is_judged_anew() -> None:
    stage, _, instance = after_a_while()
    stage.hang(instance)
    stage.seconds(15)
    assert stage.life(instance) is Life.STALLED
    entry = next(one for one in stage.table.instances if one.id == instance)
    moved = type(entry)(id=entry.id, address="10.9.9.9:8000", state=entry.state)
    stage.lives.keep([(stage.pool, moved)])
    assert stage.life(instance) is not Life.STALLED


@given(hung=st.integers(0, 2), begun=st.booleans(), stream=st.booleans(), others=st.integers(0, 4))
@in_loop
def test_whatever_waits_for_an_engine_that_hangs_ends_or_moves_within_fifteen_seconds(
    hung: int, begun: bool, stream: bool, others: int
) -> None:
    stage = Stage()
    requests = [stage.send(f"s{number}", stream=stream) for number in range(3 + others)]
    for sent in requests:
        if begun:
            stage.begin(sent, content=stream)
    stage.seconds(30)
    name = stage.table.instances[hung].id
    stage.hang(name)
    stage.seconds(14)
    stage.calls.sweep()
    for sent in requests:
        assert isinstance(sent.ticket.verdict, Dispatch)
        assert (sent.connection.failure is not None) is (sent.ticket.verdict.instance == name)


@pytest.mark.parametrize(("told_before", "after"), [(True, 30), (False, 300)])
@in_loop
def test_an_engine_that_fell_silent_is_waited_for_less_than_one_whose_metrics_never_came(told_before: bool, after: int) -> None:
    stage = Stage()
    sent = stage.send("s", stream=False)
    if told_before:
        stage.silences.runs(sent.connection.address, 1)
    stage.silences.unanswered(sent.connection.address)
    for _ in range(4 * (after - 2)):
        stage.now += 0.25
        stage.awake.look()
    stage.calls.sweep()
    assert sent.connection.failure is None
    for _ in range(16):
        stage.now += 0.25
        stage.awake.look()
    stage.calls.sweep()
    assert sent.connection.failure is not None
    assert sent.connection.failure.kind == "timeout"


def busy_ranks(ranks: int = 4, instances: int = 1, **of: Any) -> tuple[Stage, dict[str, list[Sent]]]:
    """Return a stage whose engines have answered for a while at each rank, and the requests in flight by target."""
    stage = Stage(instances=instances, ranks=ranks, **of)
    under_way: dict[str, list[Sent]] = {}
    while len(under_way) < ranks * instances:
        sent = stage.send(f"s{len(stage.sent)}")
        stage.begin(sent)
        assert isinstance(sent.ticket.verdict, Dispatch)
        under_way.setdefault(sent.ticket.verdict.instance, []).append(sent)
    for _ in range(20):
        for sent in stage.sent:
            sent.token()
        stage.second()
    assert {stage.life(target) for target in under_way} == {Life.ACTIVE}
    return stage, under_way


def go_on(stage: Stage, seconds: int) -> None:
    """Deliver a piece of every answer, except at ranks that hang."""
    for _ in range(seconds):
        for sent in stage.sent:
            if isinstance(sent.ticket.verdict, Dispatch) and sent.ticket.verdict.instance not in stage.hung:
                sent.token()
        stage.second()


@given(hung=st.integers(0, 3), stream=st.booleans(), instances=st.integers(1, 2))
@in_loop
def test_of_an_engine_one_rank_that_hangs_is_found_and_left_while_the_others_go_on(hung: int, stream: bool, instances: int) -> None:
    stage, under_way = busy_ranks(instances=instances)
    target = f"i0#{hung}"
    stage.hang(target)
    waiting = [stage.send(f"w{number}", stream=stream) for number in range(8 * instances)]
    go_on(stage, 15)
    assert {one for one in under_way if stage.life(one) is Life.STALLED} == {target}
    [found] = [one for one in stage.pool.engines.troubled() if one.trouble == EngineTrouble.ENGINE_STALLED]
    assert (found.instance, found.ranks) == ("i0", (hung,))
    assert f"its data-parallel rank {hung} has requests" in found.words
    assert stage.pool.counters.engine_stalls == 1
    for sent in (*(one for each in under_way.values() for one in each), *waiting):
        assert isinstance(sent.ticket.verdict, Dispatch)
        assert (sent.connection.failure is not None) is (sent.ticket.verdict.instance == target)
    assert stage.scheduler.broken(stage.now) == (), "the instance is there"
    for number in range(40):
        later = stage.send(f"l{number}").ticket.verdict
        assert isinstance(later, Dispatch)
        assert later.instance != target
    stage.hung.clear()
    go_on(stage, 3)
    assert [one.trouble for one in stage.pool.engines.troubled()] == []


@in_loop
def test_what_was_at_a_rank_that_hangs_goes_to_another_rank_of_the_only_instance_whose_circuit_stays_shut() -> None:
    stage, under_way = busy_ranks()
    stage.scheduler.take_records(stage.now)
    stage.hang("i0#2")
    waiting = [stage.send(f"w{number}") for number in range(20)]
    go_on(stage, 15)
    hung = [sent for sent in waiting if sent.connection.failure is not None]
    assert len(hung) > 3
    for sent in hung:
        stage.pool.engine_failed("i0#2", "stalled", stage.now, sent.ticket)
        again = stage.pool.account.retry(sent.ticket, "i0#2", stage.now, reached=True)
        assert isinstance(again, Dispatch)
        assert again.instance in {"i0#0", "i0#1", "i0#3"}
    for sent in 5 * under_way["i0#2"]:
        stage.pool.engine_failed("i0#2", "stalled", stage.now, sent.ticket)
    assert stage.scheduler.broken(stage.now) == ()
    others = [stage.scheduler.load(f"i0#{rank}") for rank in (0, 1, 3)]
    assert all(load is not None and load.is_candidate(stage.now) for load in others)
    moves = stage.scheduler.take_records(stage.now).migrations
    assert {(one.source, one.source_rank, one.target, one.trigger) for one in moves} == {("i0", 2, "i0", BindingReason.ENGINE_STALLED)}


@in_loop
def test_an_engine_of_which_all_ranks_hang_is_an_instance_that_hangs() -> None:
    stage, under_way = busy_ranks(instances=2)
    for rank in range(4):
        stage.hang(f"i0#{rank}")
    go_on(stage, 15)
    assert stage.scheduler.broken(stage.now) == ("i0",)
    [found] = [one for one in stage.pool.engines.troubled() if one.trouble == EngineTrouble.ENGINE_STALLED]
    assert found.ranks == ()
    failed = {target for target, each in under_way.items() if all(one.connection.failure is not None for one in each)}
    assert failed == {"i0#0", "i0#1", "i0#2", "i0#3"}


@given(requests=st.integers(1, 6))
@in_loop
def test_of_an_engine_that_obeys_no_header_no_rank_is_accused_of_what_another_computes(requests: int) -> None:
    stage = Stage(instances=1, ranks=4, first_rank_serves=True)
    for number in range(requests):
        sent = stage.send(f"t{number}", dialect=Dialect.RESPONSES)
        sent.call.deadline = math.inf
        stage.begin(sent)
    go_on(stage, 300)
    assert stage.pool.counters.engine_stalls == 0
    stage.hang("i0#0")
    stage.seconds(20)
    assert [one.ranks for one in stage.pool.engines.troubled()] == [(0,)], "the one that has them is"
    assert all(sent.connection.failure is None for sent in stage.sent), "nobody knows which answers are there"


@in_loop
def test_kv_events_of_one_rank_are_no_progress_of_another() -> None:
    stage, _ = busy_ranks(ranks=2)
    stage.hang("i0#0")
    stage.hang("i0#1")
    for number in range(20):
        stage.events["i0#1"] = number
        stage.second()
    assert (stage.life("i0#0"), stage.life("i0#1")) == (Life.STALLED, Life.ACTIVE)


@in_loop
def test_what_is_known_of_ranks_that_are_gone_is_forgotten() -> None:
    stage, _ = busy_ranks(ranks=2)
    stage.ranks = 1
    stage.now += 60
    stage.pool.see_ranks("i0", (0,), stage.now)
    stage.second()
    stage.second()
    assert set(stage.pool.engines.lives) == {"i0"}
