"""Watches of the kubelet and the service proxy: every line of a server becomes an event or a problem.

After a problem, the caller lists again.
"""

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from processkube import kubernetes_client
from processkube.errors import ClusterProblem
from processkube.kubeconfig import ClusterConnection
from processkube.kubernetes_client import KubernetesClient

EVENT = {"type": "ADDED", "object": {"metadata": {"name": "pod", "uid": "u", "resourceVersion": "1"}}}
GOOD = json.dumps(EVENT).encode() + b"\n"


async def watched(pieces: list[bytes], status: int = 200) -> tuple[list[dict[str, object]], ClusterProblem | None]:
    """Return the events of a watch that a server answers with these pieces, and the problem that ended it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        return response

    app = web.Application()
    app.router.add_get("/api/v1/pods", answer)
    found: list[dict[str, object]] = []
    async with TestServer(app) as server:
        connection = ClusterConnection(server=str(server.make_url("")).rstrip("/"), tls=None, token=None)
        async with KubernetesClient(connection) as client:
            try:
                async for event in client.watch("/api/v1/pods", resource_version="1"):
                    found.append(event)  # noqa: PERF401 - those before a problem are kept
            except ClusterProblem as problem:
                return found, problem
    return found, None


@pytest.mark.parametrize(
    "line",
    [
        b"upstream connect error\n",
        b"[]\n",
        b"null\n",
        b'{"type":1,"object":{}}\n',
        b'{"type":"ADDED","object":null}\n',
        b'{"type":"ADDED","object":{"metadata":null}}\n',
        b'{"type":"ADDED","object":{"metadata":{"name":"x"}}}\n',
        b'{"type":"ADDED","object":' + b"[" * 100_000 + b"\n",
        b'{"type":"ADDED\xff"}\n',
        b'{"type":"ERROR","object":{"code":500,"message":"no leader"}}\n',
        b'{"type":"ERROR","object":{}}\n',
        b'{"type":"ERROR"}\n',
    ],
)
async def test_what_is_no_event_ends_a_watch_with_one_problem_after_the_events_before(line: bytes) -> None:
    found, problem = await watched([GOOD[:20], GOOD[20:] + line])
    assert found == [EVENT]
    assert problem is not None
    assert len(str(problem)) < 300


async def test_a_line_that_is_cut_off_is_no_event_and_a_watch_that_ends_is_no_problem() -> None:
    assert await watched([GOOD, GOOD[:-9]]) == ([EVENT], None)


@pytest.mark.parametrize("status", [200, 500])
async def test_an_answer_without_an_end_is_left_at_its_bound(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_client, "LARGEST_ANSWER", 100_000)
    found, problem = await watched([b"x" * 50_000] * 5, status)
    assert found == []
    assert "more than 100000 bytes" in str(problem)
