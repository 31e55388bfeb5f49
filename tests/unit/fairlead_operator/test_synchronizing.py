"""The conversation with the control API."""

import json

import httpx
import pytest

from fairlead.instances import InstanceState, Role
from fairlead.pool_states import InstanceReport, PoolEvent, PoolState
from fairlead.tables import PoolKey
from fairlead_operator.backoff import ServerBackoff
from fairlead_operator.settings import ControlPlaneSettings
from fairlead_operator.synchronizing import ControlPlaneRefused, ControlPlaneSilent, HttpControlPlane

KEY = PoolKey(namespace="ns", name="chat")
SETTINGS = ControlPlaneSettings(url="http://api", token="secret")
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
}


def control_plane(answer: httpx.Response | Exception, seen: list[httpx.Request]) -> HttpControlPlane:
    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return HttpControlPlane(SETTINGS, ServerBackoff(30.0, lambda: 0.0, lambda: 0.5), httpx.MockTransport(handle))


async def test_a_state_goes_out_as_json_and_observations_come_back() -> None:
    seen: list[httpx.Request] = []
    observations = await control_plane(httpx.Response(200, json=ANSWER), seen).put_state(KEY, STATE)
    assert (seen[0].method, seen[0].url.path) == ("PUT", "/internal/v1/pools/ns/chat/state")
    assert seen[0].headers["authorization"] == "Bearer secret"
    body = json.loads(seen[0].content)
    assert body["instances"][0] | {"state": "Serving", "role": "both", "address": "127.0.0.1:8000"} == body["instances"][0]
    assert observations.instances[0].bound_sessions == 2


async def test_events_and_deletions_have_their_addresses() -> None:
    seen: list[httpx.Request] = []
    api = control_plane(httpx.Response(202, json={}), seen)
    await api.post_events(KEY, [PoolEvent(at=1.0, reason="Drained", message="m")])
    await api.delete_pool(KEY)
    assert [(request.method, request.url.path) for request in seen] == [
        ("POST", "/internal/v1/pools/ns/chat/events"),
        ("DELETE", "/internal/v1/pools/ns/chat"),
    ]
    assert json.loads(seen[0].content)["events"][0]["reason"] == "Drained"


async def test_a_pool_the_api_never_knew_counts_as_deleted() -> None:
    await control_plane(httpx.Response(404, json={}), []).delete_pool(KEY)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("late"),
        httpx.Response(503),
        httpx.Response(409, text="older\nthan known"),
        httpx.Response(200, text="{}"),
    ],
)
async def test_every_unusable_answer_is_silence_with_one_line(answer: httpx.Response | Exception) -> None:
    with pytest.raises(ControlPlaneSilent) as silence:
        await control_plane(answer, []).put_state(KEY, STATE)
    assert "\n" not in str(silence.value)


async def test_a_body_that_will_never_be_taken_is_told_from_an_outage() -> None:
    event = PoolEvent(at=1.0, reason="Drained", message="m")
    with pytest.raises(ControlPlaneRefused):
        await control_plane(httpx.Response(422, text="no"), []).post_events(KEY, [event])
    with pytest.raises(ControlPlaneSilent) as silence:
        await control_plane(httpx.Response(503), []).post_events(KEY, [event])
    assert not isinstance(silence.value, ControlPlaneRefused)


async def test_after_a_503_nobody_asks_until_the_time_it_named() -> None:
    seen: list[httpx.Request] = []
    now = 100.0
    pauses = ServerBackoff(30.0, lambda: now, lambda: 0.5)

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(503, headers={"Retry-After": "7"}) if len(seen) == 1 else httpx.Response(200, json=ANSWER)

    api = HttpControlPlane(SETTINGS, pauses, httpx.MockTransport(handle))
    with pytest.raises(ControlPlaneSilent) as silence:
        await api.put_state(KEY, STATE)
    assert silence.value.retry_in == 7
    now += 6.5
    with pytest.raises(ControlPlaneSilent, match=r"not asked again for 0 s after.*503") as silence:
        await api.put_state(PoolKey(namespace="ns", name="other"), STATE)
    assert len(seen) == 1
    now += 0.5
    await api.put_state(KEY, STATE)
    assert len(seen) == 2
