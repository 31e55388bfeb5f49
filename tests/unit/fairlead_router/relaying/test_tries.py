"""How often a request is tried, and for how long: engines fail as the test prescribes, in virtual time."""

import math
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from fairlead.reports.bindings import BindingReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_router.engines.silences import Silences
from fairlead_router.engines.upstream_connections import UpstreamConnection, UpstreamFailure
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.kept_prompts import KeptPrompts
from fairlead_router.pools.pool import Pool
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.refusals import ErrorAnswer
from fairlead_router.relaying.cache_moves import CacheMoves
from fairlead_router.relaying.calls import Call, Calls
from fairlead_router.relaying.carrying_on import CarryingOn
from fairlead_router.relaying.direct import DirectRelay, Upload
from fairlead_router.relaying.held_responses import HeldResponses
from fairlead_router.relaying.proxying import Proxy
from fairlead_router.relaying.usage_asking import UsageAsking
from fairlead_router.settings import Timeouts
from fairlead_testing.builders.routing_tables import routing_table

TIMEOUTS = Timeouts(connect=2.0, first_byte=10.0, idle=30.0, total=60.0)


class Answer:
    """A connection with a whole answer."""

    status = 200
    headers = ()
    complete = True

    async def read(self) -> bytes:
        return b"{}"

    def unread(self, piece: bytes) -> None:
        assert piece == b"{}", "nothing of it is kept back"


class Heard:
    """A client that is answered."""

    body = b""

    def begin(self, status: int, headers: bytes, length: int | None) -> None: ...

    def end(self, piece: bytes) -> None:
        self.body = piece


class FailingEngines:
    """Replaces the senders to engines.

    Each call of an instance fails with the next of `kinds`, after the time that such a failure takes, or is answered.
    The last kind applies to all further calls.
    """

    def __init__(self, *kinds: str, instances: int = 6) -> None:
        self.time = 1000.0
        self.kinds = list(kinds)
        self.status = 0
        """The status that an answer reports with its failure, and the time after which its engine wants a retry."""
        self.retry_after: float | None = None
        self.sent: list[str] = []
        addresses = [f"10.0.0.{number}:8000" for number in range(instances)]
        table = routing_table(addresses, policy="sticky")
        self.metrics = RouterMetrics()
        self.scheduler = PoolScheduler(table, "router-0", 1, sample_rate=1.0)
        self.pool = Pool(table, self.scheduler, self.metrics, self.time)
        self.silences = Silences(lambda: self.time)
        self.calls = Calls(TIMEOUTS, self.silences, lambda: self.time, "r")

    async def begin(
        self, call: Call, instance: str, address: str, *, credentials: bool, carried: bool, leg: object = None
    ) -> UpstreamConnection:
        return await self.connect(address, 0.0)

    def release(self, call: Call, connection: UpstreamConnection) -> None: ...

    async def connect(self, address: str, seconds: float) -> UpstreamConnection:
        kind = self.kinds.pop(0) if len(self.kinds) > 1 else self.kinds[0]
        self.sent.append(address)
        self.time += {"unreachable": TIMEOUTS.connect, "deadline": TIMEOUTS.total, "timeout": TIMEOUTS.first_byte}.get(kind, 0.0)
        if kind == "answered":
            return cast(UpstreamConnection, Answer())
        raise UpstreamFailure(kind, "it failed", self.status, retry_after_seconds=self.retry_after, headers=[(b"x-should-retry", b"true")])

    def call(self, *, stream: bool = True) -> Call:
        return self.calls.new("r-1", self.time, b"", b"{}", stream=stream, dialect=Dialect.OPENAI)

    async def relay(self) -> int:
        """Send a routed request of session `s` and return the status of its answer."""
        return (await self.answer()).status

    async def answer(self) -> ErrorAnswer:
        """Send a routed request of session `s` and return its answer."""
        sender = cast(Any, self)
        proxy = Proxy(
            sender,
            UsageAsking(sender, lambda: self.time),
            self.calls,
            HeldResponses(),
            CarryingOn(cast(Any, self), lambda: self.time),
            CacheMoves(cast(Any, self), lambda: self.time),
            KeptPrompts(0),
            lambda: self.time,
        )
        request = RoutingRequest(id="r-1", arrived_at=self.time, prompt_tokens=100, blocks=(1,), first_bytes_hash=1, session="s")
        answer = await proxy.relay(self.call(), request, self.pool, cast(Any, None))
        assert answer is not None
        assert self.pool.account.tickets == {}
        return answer

    async def relay_directly(self, *, only: str | None = None, upload: Upload | None = None) -> int:
        engines = cast(Any, self)
        direct = DirectRelay(engines, engines, self.calls, lambda: self.time, tries=3)
        client = Heard()
        answer = await direct.relay(self.call(stream=False), self.pool, cast(Any, client), only=only, upload=upload)
        assert (answer is None) is bool(client.body)
        return Answer.status if answer is None else answer.status


async def test_a_request_past_its_total_time_is_sent_to_no_other_engine_and_its_session_stays() -> None:
    engines = FailingEngines("deadline")
    assert await engines.relay() == 502
    assert len(engines.sent) == 1
    counters = engines.pool.counters
    assert (counters.failed, counters.retries, counters.upstream_errors) == (1, 0, {"deadline": 1})
    records = engines.scheduler.take_records(engines.time)
    assert records.migrations == ()
    assert [change.reason for change in records.bindings] == [BindingReason.COLD]


async def test_a_direct_request_past_its_total_time_is_sent_to_no_other_engine() -> None:
    engines = FailingEngines("deadline")
    assert await engines.relay_directly() == 502
    assert len(engines.sent) == 1


@pytest.mark.parametrize("kind", ["refused", "unreachable"])
async def test_instances_that_cannot_be_connected_to_take_none_of_the_tries(kind: str) -> None:
    engines = FailingEngines(kind)
    assert await engines.relay() == 502
    assert len(set(engines.sent)) == 6
    engines = FailingEngines(kind)
    assert await engines.relay_directly() == 502
    assert len(set(engines.sent)) == 6


async def test_an_upload_passes_over_as_many_instances_as_refuse_it() -> None:
    async def rest() -> AsyncIterator[bytes]:
        yield b"more"
        raise AssertionError

    engines = FailingEngines("refused")
    upload = Upload(rest=rest(), chunked=False)
    assert await engines.relay_directly(upload=upload) == 502
    assert len(set(engines.sent)) == 6
    assert not upload.begun


async def test_a_request_for_one_instance_is_tried_there_once() -> None:
    engines = FailingEngines("refused")
    assert await engines.relay_directly(only="i1") == 502
    assert engines.sent == ["10.0.0.1:8000"]


async def test_connecting_to_lost_nodes_ends_with_the_total_time() -> None:
    engines = FailingEngines("unreachable", instances=200)
    begun = engines.time
    assert await engines.relay() == 502
    assert engines.time - begun == TIMEOUTS.total
    assert engines.pool.counters.failed == 1
    engines = FailingEngines("unreachable", instances=200)
    assert await engines.relay_directly() == 502
    assert engines.time - begun == TIMEOUTS.total


async def test_engines_that_got_the_request_take_its_tries() -> None:
    engines = FailingEngines("unreachable", "lost", "refused", "lost", "lost")
    assert await engines.relay() == 502
    assert len(engines.sent) == 5
    engines = FailingEngines("unreachable", "lost", "refused", "lost", "lost")
    assert await engines.relay_directly() == 502
    assert len(engines.sent) == 5


async def test_failures_past_the_scheduler_open_no_circuit_of_it_and_answers_close_those_of_their_own() -> None:
    engines = FailingEngines("lost", "lost", "lost", "answered")
    circuits = engines.pool.choice.circuits
    for _ in range(3):
        assert await engines.relay_directly(only="i1") == 502
    assert (engines.scheduler.broken(engines.time), circuits.broken(engines.time)) == ((), ["i1"])
    assert await engines.relay_directly(only="i1") == 200
    assert circuits.broken(engines.time) == []


async def test_a_request_past_the_scheduler_that_fails_alike_twice_is_tried_no_more_and_speaks_of_itself() -> None:
    engines = FailingEngines("status")
    for _ in range(9):
        assert await engines.relay_directly() == 502
    assert len(engines.sent) == 18
    assert (engines.scheduler.broken(engines.time), engines.pool.choice.circuits.broken(engines.time)) == ((), [])


async def test_an_instance_whose_failures_past_the_scheduler_others_do_not_repeat_comes_last() -> None:
    engines = FailingEngines("status", "answered", "status", "answered", "status", "answered", "answered", instances=2)
    for _ in range(3):
        assert await engines.relay_directly() == 200
    assert engines.sent == ["10.0.0.0:8000", "10.0.0.1:8000"] * 3
    assert await engines.relay_directly() == 200
    assert engines.sent[-1] == "10.0.0.1:8000"


@pytest.mark.parametrize(("kind", "tries"), [("status", 2), ("answer", 2), ("timeout", 2), ("lost", 3), ("busy", 3)])
async def test_a_request_that_fails_alike_on_two_instances_is_tried_on_no_third_unless_they_may_have_died(kind: str, tries: int) -> None:
    engines = FailingEngines(kind)
    assert await engines.relay() == 502
    assert len(engines.sent) == tries
    for second in range(3):
        engines.time += second
        engines.pool.tick(engines.time)
    assert engines.scheduler.broken(engines.time) == ()


@pytest.mark.parametrize(
    ("kind", "status", "retry_after", "is_final"),
    [
        ("status", 0, None, True),
        ("timeout", 0, None, True),
        ("answer", 0, None, True),
        ("answer", 500, None, True),
        ("answer", 503, None, False),
        ("answer", 429, None, False),
        ("status", 0, 7.0, False),
        ("lost", 0, None, False),
        ("busy", 0, None, False),
    ],
)
async def test_only_a_request_that_would_fail_again_is_not_to_be_sent_again(
    kind: str, status: int, retry_after: float | None, is_final: bool
) -> None:
    engines = FailingEngines(kind)
    engines.status, engines.retry_after = status, retry_after
    answer = await engines.answer()
    said = {name: [value for other, value in answer.headers if other == name] for name, _ in answer.headers}
    assert said[b"x-should-retry"] == [b"false" if is_final else b"true"]
    assert (b"retry-after" in said) is not is_final


class AwaitedConnection:
    """A connection on which no bytes arrive."""

    address = "10.0.0.1:8000"
    received = 0
    is_held = False

    def __init__(self) -> None:
        self.failure = ""

    def abort(self, failure: UpstreamFailure | None = None) -> None:
        self.failure = "" if failure is None else failure.kind


@pytest.mark.parametrize(("stream", "seconds", "kind"), [(True, TIMEOUTS.first_byte, "timeout"), (False, TIMEOUTS.total, "deadline")])
async def test_only_a_streamed_answer_must_begin_within_the_time_to_the_first_byte(stream: bool, seconds: float, kind: str) -> None:
    engines = FailingEngines("lost")
    call, connection = engines.call(stream=stream), AwaitedConnection()
    engines.calls.enter(call)
    engines.calls.await_answer(call, cast(Any, connection))
    engines.time += seconds - 0.1
    engines.calls.sweep()
    assert connection.failure == ""
    engines.time += 0.2
    engines.calls.sweep()
    assert connection.failure == kind


async def test_no_answer_is_awaited_of_an_engine_that_answers_nothing_at_all() -> None:
    engines = FailingEngines("lost")
    call, connection = engines.call(stream=False), AwaitedConnection()
    engines.calls.enter(call)
    engines.calls.await_answer(call, cast(Any, connection))
    engines.time += TIMEOUTS.first_byte
    engines.silences.unanswered(connection.address)
    engines.time += TIMEOUTS.first_byte - 0.1
    engines.calls.sweep()
    assert connection.failure == ""
    engines.time += 0.2
    engines.calls.sweep()
    assert connection.failure == "timeout", "it is tried elsewhere"


async def test_an_engine_that_answers_another_request_is_not_silent_though_its_metrics_do_not_come() -> None:
    engines = FailingEngines("lost")
    call, connection = engines.call(stream=False), AwaitedConnection()
    other, answered = engines.call(stream=True), AwaitedConnection()
    for one, awaited in ((call, connection), (other, answered)):
        engines.calls.enter(one)
        engines.calls.await_answer(one, cast(Any, awaited))
    engines.silences.unanswered(connection.address)
    engines.calls.began(other)
    assert engines.silences.since(connection.address) == math.inf
    engines.silences.unanswered(connection.address)
    answered.received += 1
    engines.calls.sweep()
    assert engines.silences.since(connection.address) == math.inf, "more of its answer came"
    engines.time += TIMEOUTS.first_byte + 1
    engines.calls.sweep()
    assert connection.failure == ""


@pytest.mark.parametrize(("running", "is_heard", "ends"), [(1, True, False), (0, True, True), (1, False, True), (None, True, True)])
async def test_an_answer_may_pause_for_as_long_as_its_engine_says_that_it_computes(running: int | None, is_heard: bool, ends: bool) -> None:
    engines = FailingEngines("lost")
    call, connection = engines.call(), AwaitedConnection()
    engines.calls.enter(call)
    engines.calls.await_answer(call, cast(Any, connection))
    engines.calls.began(call)
    if running is not None:
        engines.silences.runs(connection.address, running)
    if not is_heard:
        engines.silences.unanswered(connection.address)
    engines.time += TIMEOUTS.idle - 0.1
    engines.calls.sweep()
    assert connection.failure == ""
    call.deadline = engines.time + 100.0
    engines.time += 0.2
    engines.calls.sweep()
    assert connection.failure == ("stalled" if ends else "")
    if not ends:
        engines.time += 100.0
        engines.calls.sweep()
        assert connection.failure == "deadline", "the total time holds"
