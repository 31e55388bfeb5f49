"""Requests past the scheduler: each is counted once, and failures are charged only to instances that caused them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.contracts.faults import Fault
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_router.engines.silences import Silences
from fairlead_router.engines.upstream_connections import UpstreamConnection, UpstreamFailure
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.served_names import refuses_name
from fairlead_router.pools.side_circuits import fault_of
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.refusals import BadRequest
from fairlead_router.relaying.calls import Call, Calls
from fairlead_router.relaying.direct import DirectRelay, Upload
from fairlead_router.serving.client_requests import ClientGone
from fairlead_router.settings import Timeouts
from fairlead_testing.builders.routing_tables import routing_table

REPORTED = b'{"error": {"message": "boom", "code": 500}}'
NAMES_THE_MODEL = b'{"error": {"message": "The model `mock` does not exist.", "code": 404}}'


class Way(NamedTuple):
    """The behaviour of one instance with the request.

    `fails` is the kind of its failure, before its answer or in the middle of it; with `leaves`, the client leaves then.
    `later` has the pieces of the body after the first, `kind` its content type, and `piped` the bytes that pass once
    the client has the head.
    """

    fails: str = ""
    status: int = 200
    body: bytes = b"[]"
    begins: bool = False
    leaves: bool = False
    later: tuple[bytes, ...] = ()
    kind: bytes = b"application/json"
    piped: tuple[bytes, ...] = (b"{", b"}")


class Answer:
    """A connection with the answer of one instance."""

    def __init__(self, way: Way, client: "Heard") -> None:
        self.way = way
        self.address = "10.0.0.1:8000"
        self.status = way.status
        self.headers: list[tuple[bytes, bytes]] = [(b"content-type", way.kind)]
        self.complete = not way.begins and not way.later
        self._client = client
        self._rest = way.body
        self._later = list(way.later)

    async def read(self) -> bytes:
        piece, self._rest = self._rest, b""
        if not piece and self._later:
            piece = self._later.pop(0)
            self.complete = not self._later
        if self.way.begins and not piece:
            raise UpstreamFailure(self.way.fails, "it broke off")
        return piece

    def unread(self, piece: bytes) -> None:
        self._rest = piece + self._rest

    async def pipe(self, sink: Callable[[bytes], bool]) -> bytes:
        for piece in self.way.piped[:-1]:
            sink(piece)
        if self.way.leaves:
            await self._client.leave()
        if self.way.fails:
            raise UpstreamFailure(self.way.fails, "it broke off")
        return self.way.piped[-1]

    def resume(self) -> None: ...


class Heard:
    """A client that records its answer."""

    def __init__(self) -> None:
        self.begun = self.ended = self.aborted = 0
        self.call: Call | None = None

    async def leave(self) -> None:
        assert self.call is not None
        self.call.client_gone()
        await asyncio.sleep(0)

    def begin(self, status: int, headers: bytes, length: int | None) -> None:
        self.begun += 1

    def write(self, piece: bytes) -> bool:
        return True

    def end(self, piece: bytes) -> None:
        self.ended += 1

    def abort(self) -> None:
        self.aborted += 1

    def on_writable(self, resume: Callable[[], None]) -> None: ...

    def accompany(self, headers: list[tuple[bytes, bytes]]) -> None: ...


class Engines:
    """Replaces the senders to engines; they behave as the ways prescribe, one after another."""

    def __init__(self, ways: list[Way], instances: int = 3) -> None:
        self.ways = list(ways)
        self.asked: list[tuple[str, Way]] = []
        table = routing_table([f"10.0.0.{number}:8000" for number in range(instances)])
        self.pool = Pool(table, PoolScheduler(table, "router-0", 1), RouterMetrics(), 1000.0)
        self.calls = Calls(Timeouts(), Silences(lambda: 1000.0), lambda: 1000.0, "r")
        self.client = Heard()

    async def begin(self, call: Call, instance: str, address: str, **_: object) -> UpstreamConnection:
        way = self.ways.pop(0) if self.ways else Way()
        self.asked.append((instance, way))
        if not way.begins:
            if way.leaves:
                await self.client.leave()
            if way.fails:
                raise UpstreamFailure(way.fails, "it failed")
        return cast(UpstreamConnection, Answer(way, self.client))

    def release(self, call: Call, connection: UpstreamConnection) -> None: ...

    async def connect(self, address: str, seconds: float) -> UpstreamConnection:
        raise UpstreamFailure("refused", "nobody listens")

    async def relay(self, upload: Upload | None = None, only: str | None = None) -> int:
        """Serve one request, in a task, as its client may leave. Return the status that the caller has to send; 0 =
        none.
        """

        async def relayed() -> int:
            engines = cast(Any, self)
            relay = DirectRelay(engines, engines, self.calls, lambda: 1000.0, tries=3)
            call = self.client.call = self.calls.new("r-1", 1000.0, b"", b"{}", stream=False, dialect=Dialect.OPENAI)
            call.model = "mock"
            answer = await relay.relay(call, self.pool, cast(Any, self.client), upload=upload, only=only)
            return 0 if answer is None else answer.status

        return await asyncio.create_task(relayed())

    @property
    def counted(self) -> dict[str, int]:
        return dict(self.pool.counters.direct)

    @property
    def failures(self) -> dict[str, int]:
        """Return the failures charged to each instance."""
        circuits = self.pool.choice.circuits._circuits  # what opens them is their count
        return {instance: circuit.failures for instance, circuit in circuits.items()}


KINDS = ["refused", "unreachable", "lost", "protocol", "status", "timeout", "stalled", "deadline", "busy", "credential"]
WAYS = st.one_of(
    st.just(Way()),
    st.tuples(st.sampled_from(KINDS), st.booleans()).map(lambda drawn: Way(fails=drawn[0], leaves=drawn[1])),
    st.tuples(st.sampled_from([400, 404, 422]), st.sampled_from([b"{}", NAMES_THE_MODEL, b"x" * 300_000])).map(
        lambda drawn: Way(status=drawn[0], body=drawn[1])
    ),
    st.tuples(st.sampled_from(["", *KINDS[2:8]]), st.booleans()).map(lambda drawn: Way(begins=True, fails=drawn[0], leaves=drawn[1])),
    st.sampled_from(KINDS[2:8]).map(lambda kind: Way(begins=True, fails=kind, status=400)),
)


def held_against(engines: Engines, *, left: bool) -> dict[str, int]:
    """Return the failures that may be charged to each instance, by the rules of docs/gateway.md."""
    last, way = engines.asked[-1]
    served = way.status < 400 and not way.fails and not left
    expected = Counter[str]()
    suspected: list[tuple[str, Fault]] = []
    for instance, one in engines.asked:
        fault = fault_of(one.fails) if one.fails else None
        if not one.fails and one.status >= 400 and (instance, one) != (last, way):
            fault = None if refuses_name(one.status, one.body, "mock") else Fault.REFUSED
        if one.leaves or fault is None:
            continue
        if fault is Fault.UNREACHED:
            expected[instance] += 1
        else:
            suspected.append((instance, fault))
    kinds = [fault for _, fault in suspected[-2:]]
    alike = len(kinds) > 1 and kinds[0].is_like(kinds[1]) and kinds[1] is not Fault.LOST
    if served or not (left or alike):
        expected.update(instance for instance, fault in suspected if served or fault is not Fault.REFUSED)
    if served:
        del expected[last]
    return dict(expected)


@given(st.lists(WAYS, min_size=1, max_size=4))
def test_however_a_direct_request_ends_it_is_counted_once_and_holds_against_instances_only_what_they_did(ways: list[Way]) -> None:
    async def play() -> None:
        engines = Engines(ways)
        status = await engines.relay()
        left = engines.client.call is not None and engines.client.call.gone
        _, way = engines.asked[-1]
        outcome = "rejected-by-engine" if way.status >= 400 and not way.fails else "failed" if way.fails or status else "served"
        if way.fails and engines.client.begun and not (way.begins and way.status < 400):
            outcome = "rejected-by-engine"  # the refusal of another instance holds
        assert engines.counted == {"cancelled" if left else outcome: 1}, engines.asked
        assert not engines.pool.account.direct
        assert engines.calls.active() == 0
        assert engines.client.begun <= 1
        if not left:
            assert (status == 0) == (engines.client.ended + engines.client.aborted == 1)
        if outcome != "rejected-by-engine" or left:
            assert engines.failures == held_against(engines, left=left), engines.asked

    asyncio.run(play())


@pytest.mark.parametrize("kind", ["lost", "stalled", "protocol"])
async def test_an_answer_that_breaks_after_it_began_counts_against_its_instance(kind: str) -> None:
    engines = Engines([Way(begins=True, fails=kind)])
    assert await engines.relay() == 0
    assert engines.client.aborted == 1
    assert (engines.counted, engines.failures) == ({"failed": 1}, {"i0": 1})


@pytest.mark.parametrize("at", range(1, len(REPORTED), 3))
async def test_an_error_in_place_of_an_answer_is_found_however_it_is_cut(at: int) -> None:
    engines = Engines([Way(body=REPORTED[:at], later=(REPORTED[at:-1], REPORTED[-1:], b""))])
    assert await engines.relay() == 0
    assert [instance for instance, _ in engines.asked] == ["i0", "i1"]
    assert engines.counted == {"served": 1}


async def test_a_document_that_breaks_off_before_its_client_has_any_of_it_is_asked_for_elsewhere() -> None:
    engines = Engines([Way(begins=True, fails="lost", body=b'{"tokens": [1, 2')])
    assert await engines.relay() == 0
    assert (engines.client.begun, engines.client.aborted) == (1, 0)
    assert (engines.counted, engines.failures) == ({"served": 1}, {"i0": 1})


FIRST, REPORTED_EVENT = b'data: {"choices": []}\n\n', b"data: " + REPORTED + b"\n\n"


async def test_an_error_as_the_first_event_is_asked_for_elsewhere() -> None:
    engines = Engines([Way(kind=b"text/event-stream", body=REPORTED_EVENT[:9], later=(REPORTED_EVENT[9:], b""))])
    assert await engines.relay() == 0
    assert [instance for instance, _ in engines.asked] == ["i0", "i1"]
    assert engines.counted == {"served": 1}


async def test_an_error_behind_other_events_is_passed_on_and_counted_as_failed() -> None:
    engines = Engines([Way(kind=b"text/event-stream", body=FIRST, piped=(FIRST, REPORTED_EVENT), later=(b"",))])
    assert await engines.relay() == 0
    assert (engines.client.ended, engines.client.aborted) == (1, 0)
    assert (engines.counted, engines.failures) == ({"failed": 1}, {"i0": 1})


async def test_what_failed_before_an_answer_that_broke_is_judged_too() -> None:
    engines = Engines([Way(fails="timeout"), Way(begins=True, fails="lost")])
    await engines.relay()
    assert engines.failures == {"i0": 1, "i1": 1}


async def test_who_hangs_up_between_two_instances_holds_nothing_against_the_first() -> None:
    engines = Engines([Way(fails="status"), Way(leaves=True)])
    assert await engines.relay() == 0
    assert (engines.counted, engines.failures) == ({"cancelled": 1}, {})


@pytest.mark.parametrize(
    ("problem", "outcome"), [(BadRequest(400, "invalid_form", "no form"), "refused"), (ClientGone(), "cancelled"), (OSError(), "failed")]
)
async def test_an_upload_whose_rest_does_not_come_is_counted_once(problem: Exception, outcome: str) -> None:
    async def rest() -> AsyncIterator[bytes]:
        yield b"more"
        raise problem

    class Sent(Answer):
        async def send_more(self, piece: bytes) -> None: ...

        def send(self, head: bytes, body: bytes) -> None: ...

        def abort(self) -> None: ...

    class Uploaded(Engines):
        async def connect(self, address: str, seconds: float) -> UpstreamConnection:
            sent = Sent(Way(), self.client)
            sent.status = 0
            return cast(UpstreamConnection, sent)

    engines = Uploaded([])
    with suppress(type(problem)):
        await engines.relay(Upload(rest=rest(), chunked=True))
    assert (engines.counted, engines.failures) == ({outcome: 1}, {})
    assert not engines.pool.account.direct


async def test_an_instance_that_lacks_the_name_stands_in_for_none_that_has_it() -> None:
    engines = Engines([Way(fails="lost"), Way(fails="lost")])
    engines.pool.choice.names.contradicted("i0", "mock", 1000.0)
    assert await engines.relay() == 502
    assert [instance for instance, _ in engines.asked] == ["i1", "i2"]
    for instance in ("i1", "i2"):
        engines.pool.choice.names.contradicted(instance, "mock", 1000.0)
    assert await engines.relay() == 0
    assert engines.asked[-1][0] == "i0", "where nobody has it, all are asked"


async def test_a_refusal_is_not_tried_at_an_instance_that_lacks_the_name() -> None:
    engines = Engines([Way(status=400, body=b"bad")], instances=2)
    engines.pool.choice.names.contradicted("i0", "mock", 1000.0)
    assert await engines.relay() == 0
    assert [instance for instance, _ in engines.asked] == ["i1"]
    assert engines.counted == {"rejected-by-engine": 1}
