"""The client of the internal protocol with answers of every kind.

tests/contract/seams tests the API's reaction to its calls.
"""

from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest

from fairlead.instances import InstanceState, Role
from fairlead.pool_states import InstanceReport, PoolEvent, PoolState
from fairlead.reports.batches import Report, ReportBatch, ReportReceipt, RouterGone, RouterState
from fairlead.tables import PoolKey
from fairlead_client.internal import SystemApi
from fairlead_client.lines import BindingsLine, HeartbeatLine, StreamLine, SyncedLine
from fairlead_client.outcomes import Cause, Later, Refused, Taken
from fairlead_client.problems import StreamLost
from fairlead_client.report_posts import encode_batch

KEY = PoolKey(namespace="ns", name="chat")
STATE = PoolState(
    uid="u",
    generation=2,
    resource_version="7",
    spec={"model": "m"},
    changed_by="kubectl",
    instances=(
        InstanceReport(
            id="chat-b1", pod_uid="p", address="127.0.0.1:8000", role=Role.BOTH, state=InstanceState.SERVING, reason="Ready", created_at=1.5
        ),
    ),
)
ANSWER = {
    "table_version": 3,
    "table_acknowledged": True,
    "live_routers": 2,
    "ttft_attainment": 0.9,
    "requests_per_second": 1.0,
    "instances": [{"id": "chat-b1", "in_flight": 1, "bound_sessions": 2, "cache_tokens": 3, "acknowledged": True}],
    "said_by_a_newer_api": 1,
}
BATCH = encode_batch(ReportBatch(id="b1", router="router-0"))
NOW = RouterState(sent_at=5.0)


def system_api(answer: httpx.Response | Exception, seen: list[httpx.Request] | None = None) -> SystemApi:
    def handle(request: httpx.Request) -> httpx.Response:
        if seen is not None:
            seen.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return SystemApi("http://api", "secret", transport=httpx.MockTransport(handle))


async def test_a_state_goes_out_as_json_and_observations_come_back() -> None:
    seen: list[httpx.Request] = []
    outcome = await system_api(httpx.Response(200, json=ANSWER), seen).put_state(KEY, STATE)
    assert (seen[0].method, seen[0].url.path) == ("PUT", "/internal/v1/pools/ns/chat/state")
    assert seen[0].headers["authorization"] == "Bearer secret"
    assert msgspec.json.decode(seen[0].content, type=PoolState) == STATE
    assert isinstance(outcome, Taken)
    assert outcome.answer.instances[0].bound_sessions == 2


async def test_every_call_has_its_address_and_names_are_quoted_into_it() -> None:
    seen: list[httpx.Request] = []
    api = system_api(httpx.Response(202, json={}), seen)
    assert await api.post_events(KEY, [PoolEvent(at=1.0, reason="Drained", message="m")]) == Taken(None)
    assert await api.delete_pool(PoolKey(namespace="n/s", name="a?b")) == Taken(None)
    assert await api.post_router_gone(RouterGone(router="router-0", at=1.0)) == Taken(None)
    assert [(request.method, request.url.raw_path) for request in seen] == [
        ("POST", b"/internal/v1/pools/ns/chat/events"),
        ("DELETE", b"/internal/v1/pools/n%2Fs/a%3Fb"),
        ("POST", b"/internal/v1/routers/gone"),
    ]
    assert msgspec.json.decode(seen[0].content)["events"][0]["reason"] == "Drained"


async def test_a_pool_the_api_never_knew_counts_as_deleted() -> None:
    assert await system_api(httpx.Response(404, json={})).delete_pool(KEY) == Taken(None)


async def test_neighbouring_batches_go_in_one_post_and_the_first_carries_the_state() -> None:
    seen: list[httpx.Request] = []
    receipts = (ReportReceipt(id="b1", duplicate=False), ReportReceipt(id="b2", duplicate=True))
    api = system_api(httpx.Response(200, content=msgspec.json.encode(receipts)), seen)
    second = encode_batch(ReportBatch(id="b2", router="router-0"))
    assert await api.post_reports([BATCH, second], RouterState(sent_at=5.0)) == Taken(receipts)
    assert msgspec.json.decode(seen[0].content, type=list[Report]) == [
        Report(id="b1", router="router-0", sent_at=5.0),
        Report(id="b2", router="router-0", sent_at=5.0),
    ]


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (httpx.ConnectError("refused"), Cause.UNREACHABLE),
        (httpx.RemoteProtocolError("cut\noff"), Cause.UNREACHABLE),
        (httpx.ConnectTimeout("late"), Cause.UNREACHABLE),
        (httpx.ReadTimeout("late"), Cause.TIMED_OUT),
        (httpx.Response(500), Cause.FAULT),
        (httpx.Response(503), Cause.UNAVAILABLE),
        (httpx.Response(429), Cause.UNAVAILABLE),
        (httpx.Response(401, text="token"), Cause.DECLINED),
        (httpx.Response(409, text="older\nthan known"), Cause.DECLINED),
        (httpx.Response(200, text="{}"), Cause.UNREADABLE),
    ],
)
async def test_what_is_not_taken_now_has_its_cause_and_one_line(answer: httpx.Response | Exception, cause: Cause) -> None:
    for outcome in (await system_api(answer).put_state(KEY, STATE), await system_api(answer).post_reports([BATCH], NOW)):
        assert isinstance(outcome, Later)
        assert outcome.cause is cause
        assert "\n" not in outcome.problem


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_body_that_will_never_be_taken_is_refused(status: int) -> None:
    outcome = await system_api(httpx.Response(status, text="no\nway")).post_reports([BATCH], NOW)
    assert outcome == Refused(problem=f"POST /internal/v1/reports: {status} no way")


async def test_a_problem_document_is_told_in_its_own_words() -> None:
    document = {"type": "database-unavailable", "title": "Away", "status": 503, "detail": "no\nanswer", "remedy": "send it again"}
    outcome = await system_api(httpx.Response(503, json=document)).post_reports([BATCH], NOW)
    assert isinstance(outcome, Later)
    assert outcome.problem == "POST /internal/v1/reports: 503 database-unavailable: no answer; send it again"


@pytest.mark.parametrize(("header", "seconds"), [({"retry-after": "7"}, 7.0), ({"retry-after": "Wed, 21 Oct"}, None), ({}, None)])
async def test_the_pause_the_api_asks_for_is_told(header: dict[str, str], seconds: float | None) -> None:
    outcome = await system_api(httpx.Response(503, headers=header)).delete_pool(KEY)
    assert isinstance(outcome, Later)
    assert outcome.retry_after_seconds == seconds


async def lines(answer: httpx.Response | Exception) -> tuple[list[StreamLine], str]:
    """Return the lines of a stream, and the error with which it ended."""
    found: list[StreamLine] = []
    try:
        async for line in system_api(answer).stream("router-0"):
            found.append(line)  # noqa: PERF401 - what came before the end is wanted too
    except StreamLost as lost:
        return found, str(lost)
    raise AssertionError("a stream ends only by being lost")


def streamed(content: bytes) -> httpx.Response:
    async def pieces() -> AsyncIterator[bytes]:
        yield content

    return httpx.Response(200, content=pieces())


async def test_a_stream_is_its_lines_and_then_how_it_was_lost() -> None:
    content = b'{"type":"bindings","bindings":[]}\n\n{"type":"weather"}\n{"type":"synced"}\n{"type":"heartbeat"}\n'
    assert await lines(streamed(content)) == (
        [BindingsLine(bindings=()), SyncedLine(), HeartbeatLine()],
        "the control API ended the stream",
    )
    assert await lines(streamed(b'{"type":"synced"}\nnot json\n')) == (
        [SyncedLine()],
        "unreadable line: JSON is malformed: invalid character (byte 4)",
    )
    assert await lines(httpx.Response(401)) == ([], "the control API answered 401")
    assert await lines(httpx.ReadTimeout("")) == ([], "ReadTimeout")
