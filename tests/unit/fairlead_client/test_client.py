"""The client against answers of every kind."""

from collections.abc import Callable

import httpx
import pytest

from fairlead.tables import PoolKey
from fairlead_client.client import ControlApi
from fairlead_client.live import LiveEvent
from fairlead_client.problems import ApiLate, ApiProblem, ApiUnreachable, ClientBusy


def client(answer: Callable[[httpx.Request], httpx.Response]) -> ControlApi:
    return ControlApi("http://api.test", "secret", httpx.MockTransport(answer))


async def test_a_problem_document_becomes_one_error_with_its_retry_time() -> None:
    document = {"type": "database-unavailable", "title": "Temporarily unavailable", "status": 503, "detail": "gone", "new-member": 1}
    api = client(lambda _: httpx.Response(503, json=document, headers={"retry-after": "2"}))
    with pytest.raises(ApiProblem, match="503 Temporarily unavailable: gone") as caught:
        await api.pools()
    assert (caught.value.retryable, caught.value.retry_after_seconds) == (True, 2.0)


@pytest.mark.parametrize(
    "answer", [httpx.Response(502, text="<html>bad gateway"), httpx.Response(200, text="{"), httpx.Response(200, json=[1])]
)
async def test_an_answer_that_is_not_ours_is_unreachable(answer: httpx.Response) -> None:
    with pytest.raises(ApiUnreachable):
        await client(lambda _: answer).whoami()


async def test_a_refused_connection_is_unreachable_in_one_line() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused", request=request)

    with pytest.raises(ApiUnreachable, match="did not answer: connection refused"):
        await client(refuse).whoami()


@pytest.mark.parametrize("error", [httpx.ReadTimeout, httpx.WriteTimeout])
async def test_an_api_that_took_a_request_and_is_late_is_told_apart_from_one_that_is_not_there(error: type[httpx.TimeoutException]) -> None:
    def late(request: httpx.Request) -> httpx.Response:
        raise error("", request=request)

    with pytest.raises(ApiLate, match="took too long to answer"):
        await client(late).whoami()


async def test_a_request_that_found_no_free_connection_of_its_own_process_says_nothing_of_the_api() -> None:
    def full(request: httpx.Request) -> httpx.Response:
        raise httpx.PoolTimeout("", request=request)

    with pytest.raises(ClientBusy, match="all of this process's connections to the control API are in use") as raised:
        await client(full).whoami()
    assert not isinstance(raised.value, ApiLate)


async def test_names_are_quoted_into_paths_and_the_bearer_is_sent() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(404, json={"type": "not-found", "title": "Not found", "status": 404, "detail": "no"})

    for call in (client(answer).session(PoolKey(namespace="n", name="p"), "a/b c?#"), client(answer).with_token("other").plan("../x")):
        with pytest.raises(ApiProblem):
            await call
    assert seen[0].url.raw_path == b"/v1/sessions/n/p/a%2Fb%20c%3F%23"
    assert [request.headers["authorization"] for request in seen] == ["Bearer secret", "Bearer other"]


async def test_events_are_decoded_with_their_ids() -> None:
    text = b": hello\n\nevent: pools\nid: 7\ndata: [1,\ndata: 2]\n\ndata: x\n\n"
    api = client(lambda _: httpx.Response(200, content=text))
    assert [event async for event in api.live(("pools",))] == [
        LiveEvent(event="pools", data="[1,\n2]", id="7"),
        LiveEvent(event="message", data="x", id=None),
    ]
