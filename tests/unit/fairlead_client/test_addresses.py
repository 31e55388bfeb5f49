"""An API at several addresses: which address is called, and which requests are never sent twice."""

from collections.abc import Callable

import httpx
import msgspec
import pytest

from fairlead_client.addresses import reaching
from fairlead_client.client import ControlApi
from fairlead_client.internal import SystemApi
from fairlead_client.outcomes import Cause, Later
from fairlead_client.problems import StreamLost
from fairlead_client.resources.access import Identity
from fairlead_testing.builders.wire_examples import example

ONE, TWO = "http://one:8080", "https://two/fairlead"
Behaviour = Callable[[httpx.Request], httpx.Response]


class Apis:
    """Two addresses. `does` has, by host, the fate of a request; `asked` has the received requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.does: dict[str, Behaviour] = {}

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.method} {request.url} {request.headers['host']}")
        answer = self.does.get(request.url.host)
        return httpx.Response(202, json={}) if answer is None else answer(request)

    def hosts(self) -> list[str]:
        hosts = [httpx.URL(line.split()[1]).host for line in self.asked]
        self.asked.clear()
        return hosts

    def client(self) -> httpx.AsyncClient:
        base_url, transport = reaching((ONE, TWO), httpx.MockTransport(self.handle))
        return httpx.AsyncClient(base_url=base_url, transport=transport)

    def system_api(self) -> SystemApi:
        return SystemApi((ONE, TWO), "secret", transport=httpx.MockTransport(self.handle))


@pytest.fixture
def apis() -> Apis:
    return Apis()


def raising(error: type[httpx.TransportError]) -> Behaviour:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error("broken", request=request)

    return fail


def answering(status: int) -> Behaviour:
    return lambda _: httpx.Response(status, json={})


@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ConnectTimeout])
async def test_a_request_that_reached_nobody_goes_to_the_next_address_at_once_and_later_ones_begin_there(
    apis: Apis, error: type[httpx.TransportError]
) -> None:
    apis.does["one"] = raising(error)
    async with apis.client() as client:
        assert (await client.post("/v1/plans?dry=1", content=b"{}")).status_code == 202
        assert apis.asked[-1] == "POST https://two/fairlead/v1/plans?dry=1 two"
        assert apis.hosts() == ["one", "two"]
        del apis.does["one"]
        await client.get("/v1/pools")
        assert apis.hosts() == ["two"]


@pytest.mark.parametrize("error", [httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError])
async def test_a_request_that_may_have_been_taken_is_not_sent_twice_but_the_next_goes_elsewhere(
    apis: Apis, error: type[httpx.TransportError]
) -> None:
    apis.does["one"] = raising(error)
    api = apis.system_api()
    outcome = await api.held_pools()
    assert isinstance(outcome, Later)
    assert outcome.cause is (Cause.TIMED_OUT if error is httpx.ReadTimeout else Cause.UNREACHABLE)
    assert apis.hosts() == ["one"]
    await api.held_pools()
    assert apis.hosts() == ["two"]


async def test_an_api_that_says_it_cannot_now_is_believed_and_the_next_call_goes_elsewhere(apis: Apis) -> None:
    apis.does["one"] = answering(503)
    async with apis.client() as client:
        assert (await client.get("/v1/pools")).status_code == 503
        assert (await client.get("/v1/pools")).status_code == 202
        assert apis.hosts() == ["one", "two"]


@pytest.mark.parametrize("status", [401, 404, 409, 422, 500])
async def test_an_answer_about_the_request_itself_moves_nobody(apis: Apis, status: int) -> None:
    apis.does["one"] = answering(status)
    async with apis.client() as client:
        for _ in range(2):
            assert (await client.get("/v1/pools")).status_code == status
        assert apis.hosts() == ["one", "one"]


async def test_when_no_address_can_be_reached_each_was_tried_once_and_the_first_is_next(apis: Apis) -> None:
    apis.does = dict.fromkeys(("one", "two"), raising(httpx.ConnectError))
    outcome = await apis.system_api().held_pools()
    assert isinstance(outcome, Later)
    assert outcome.cause is Cause.UNREACHABLE
    assert apis.hosts() == ["one", "two"]


class Silent(httpx.AsyncByteStream):
    """A stream that sends nothing after its first line, and stays open."""

    async def __aiter__(self):  # type: ignore[no-untyped-def]  # as its base class
        yield b'{"type":"heartbeat"}\n'
        raise httpx.ReadTimeout("silent")


async def test_a_stream_that_falls_silent_is_followed_at_another_address(apis: Apis) -> None:
    apis.does["one"] = lambda _: httpx.Response(200, stream=Silent())
    api = apis.system_api()
    for expected in ("one", "two"):
        with pytest.raises(StreamLost):
            async for _ in api.stream("router-0"):
                pass
        assert apis.hosts() == [expected]


async def test_people_are_served_at_the_other_address_too(apis: Apis) -> None:
    apis.does["one"] = raising(httpx.ConnectError)
    apis.does["two"] = lambda _: httpx.Response(200, content=msgspec.json.encode(example(Identity)))
    async with ControlApi((ONE, TWO), "t", httpx.MockTransport(apis.handle)) as api:
        assert (await api.whoami()).subject
