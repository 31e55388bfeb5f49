"""Requests to the Kubernetes API: their credentials, and the meaning of each kind of failure."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from fairlead_process.kubernetes_api import LONGEST_RETRY_AFTER, ClusterNotConfigured, ClusterRefused, ClusterUnavailable, KubernetesApi
from fairlead_testing.waiting import PATIENCE_SECONDS

KUBECONFIG = (
    "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: x, cluster: {{server: '{server}'{more}}}}}]\n"
    "contexts: [{{name: x, context: {{cluster: x, user: x}}}}]\nusers: [{{name: x, user: {{token: '{token}'}}}}]\n"
)


class ScriptedServer:
    """A server that answers every request with `status` and `text` after `seconds`; without the right `token` with a
    401.
    """

    def __init__(self) -> None:
        self.status, self.text, self.token, self.seconds = 200, "{}", "good", 0.0
        self.headers: dict[str, str] = {}
        self.let_go = asyncio.Event()
        """The event until which `/held` is not answered."""
        self.url = ""
        self.asked: list[str] = []
        self.body = b""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path_qs}")
        self.body = await request.read()
        if request.path == "/held":
            await self.let_go.wait()
            return web.json_response({"was": "held"})
        await asyncio.sleep(self.seconds)
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"message": "who are you?", "reason": "Unauthorized"}, status=401)
        return web.Response(status=self.status, text=self.text, content_type="application/json", headers=self.headers)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    scripted = ScriptedServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", scripted.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    scripted.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield scripted
    await runner.cleanup()


def write(path: Path, server: str, token: str = "good", more: str = "") -> str:
    path.write_text(KUBECONFIG.format(server=server, token=token, more=more), encoding="utf-8")
    return str(path)


@pytest.fixture
async def api(server: ScriptedServer, tmp_path: Path) -> AsyncIterator[KubernetesApi]:
    connected = await KubernetesApi.connect(write(tmp_path / "kubeconfig", server.url))
    yield connected
    await connected.close()


async def test_an_answer_is_its_document_and_the_awaited_absence_is_none(server: ScriptedServer, api: KubernetesApi) -> None:
    server.text = '{"kind": "Pod"}'
    assert await api.call("GET", "/api/v1/pods", query=[("limit", "1")]) == {"kind": "Pod"}
    assert server.asked == ["GET /api/v1/pods?limit=1"]
    server.status = 404
    assert await api.call("GET", "/api/v1/pods", absent=404) is None


async def test_a_body_is_written_as_go_writes_it(server: ScriptedServer, api: KubernetesApi) -> None:
    """Kubernetes 1.36 refuses every later patch of a ControllerRevision whose data were written differently."""
    await api.call("POST", "/x", body={"b": {"d": "<é & \u2028>", "c": [1, 0.5, None]}, "a": True})
    assert server.body.decode() == '{"a":true,"b":{"c":[1,0.5,null],"d":"\\u003cé \\u0026 \\u2028\\u003e"}}'


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_server_in_trouble_is_worth_asking_again(server: ScriptedServer, api: KubernetesApi, status: int) -> None:
    server.status, server.text = status, "not JSON at all"
    with pytest.raises(ClusterUnavailable, match=r"GET /x: .* not JSON") as caught:
        await api.call("GET", "/x")
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0", 0.0), ("86400", LONGEST_RETRY_AFTER), ("-5", 0.0), ("x", 0.0), ("²", 0.0), ("Sun, 29 Nov 2026 12:00:00 GMT", 0.0)],
)
async def test_a_server_may_ask_for_a_pause_within_a_bound(server: ScriptedServer, api: KubernetesApi, header: str, seconds: float) -> None:
    server.status, server.text, server.headers = 429, "{}", {"Retry-After": header}
    with pytest.raises(ClusterUnavailable) as caught:
        await api.call("GET", "/api/v1/pods")
    assert caught.value.retry_after == seconds


async def test_a_refusal_has_status_reason_and_the_servers_words(server: ScriptedServer, api: KubernetesApi) -> None:
    server.status, server.text = 422, '{"reason": "Invalid", "message": "spec.replicas: too many"}'
    with pytest.raises(ClusterRefused) as caught:
        await api.call("PATCH", "/x", body={})
    refused = caught.value
    assert (refused.status, refused.reason, refused.text) == (422, "Invalid", "spec.replicas: too many")
    assert str(refused) == "PATCH /x: 422 spec.replicas: too many"


async def test_credentials_that_expired_are_read_anew_once(server: ScriptedServer, api: KubernetesApi, tmp_path: Path) -> None:
    server.token = "newer"
    write(tmp_path / "kubeconfig", server.url, token="newer")
    assert await api.call("GET", "/x") == {}
    server.token = "newest"
    with pytest.raises(ClusterUnavailable, match="401 who are you") as caught:
        await api.call("GET", "/x")
    assert caught.value.status == 401
    assert len(server.asked) == 4


async def test_a_server_that_is_not_there_is_unavailable_without_a_status(tmp_path: Path) -> None:
    api = await KubernetesApi.connect(write(tmp_path / "kubeconfig", "http://127.0.0.1:1"))
    with pytest.raises(ClusterUnavailable, match="GET /x: ") as caught:
        await api.call("GET", "/x")
    assert caught.value.status is None
    assert not caught.value.is_late
    await api.close()


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_a_write_that_was_sent_and_not_answered_in_time_is_late(server: ScriptedServer, tmp_path: Path, method: str) -> None:
    api = await KubernetesApi.connect(write(tmp_path / "kubeconfig", server.url), write_seconds=0.2)
    server.seconds = 0.4
    with pytest.raises(ClusterUnavailable, match=r"/x: no answer within 0.2 s") as caught:
        await api.call(method, "/x", body={})
    assert (caught.value.status, caught.value.is_late) == (None, True)
    assert await api.call("GET", "/x") == {}, "it is read for longer"
    await api.close()


NO_SUCH_AUTHORITY = KUBECONFIG.format(server="https://x", token="t", more=", certificate-authority: /none")


@pytest.mark.parametrize("content", [None, "]", "kind: Config", "a: b: c", NO_SUCH_AUTHORITY])
async def test_a_kubeconfig_that_cannot_be_used_is_named_in_one_line(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(ClusterNotConfigured, match=r"^KUBECONFIG: '.*kubeconfig' cannot be used") as caught:
        await KubernetesApi.connect(str(path))
    assert "\n" not in str(caught.value)


async def test_outside_a_cluster_without_a_kubeconfig_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClusterNotConfigured, match="set KUBECONFIG to a kubeconfig file"):
        await KubernetesApi.connect(None)


async def test_an_answer_that_is_no_document_counts_as_none(server: ScriptedServer, api: KubernetesApi) -> None:
    server.text = "<html>sign in</html>"
    with pytest.raises(ClusterUnavailable, match="GET /version: 200 without a document") as caught:
        await api.call("GET", "/version")
    assert caught.value.status == 200, "there was an answer, so the connection is not given up"


async def test_a_proxy_of_the_environment_is_used_and_one_that_is_not_for_this_address_is_not(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "elsewhere.example")
    through = await KubernetesApi.connect(write(tmp_path / "through", "http://cluster.example"))
    assert await through.call("GET", "/version") == {}
    await through.close()
    around = await KubernetesApi.connect(write(tmp_path / "around", "http://elsewhere.example.:1"))
    await around.close()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    direct = await KubernetesApi.connect(write(tmp_path / "direct", server.url))
    assert await direct.call("GET", "/version") == {}
    await direct.close()
    assert len(server.asked) == 2


async def test_calls_whose_credentials_expired_together_log_in_anew_without_ending_each_other_or_others(
    server: ScriptedServer, api: KubernetesApi, tmp_path: Path
) -> None:
    held = asyncio.ensure_future(api.call("GET", "/held"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not server.asked:
            await asyncio.sleep(0.01)
    server.token, server.seconds = "newer", 0.1
    write(tmp_path / "kubeconfig", server.url, token="newer")
    assert await asyncio.gather(*(api.call("GET", "/x") for _ in range(5))) == [{}] * 5
    server.let_go.set()
    assert await held == {"was": "held"}
