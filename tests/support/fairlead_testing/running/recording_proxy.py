"""A proxy in front of a Kubernetes API. It records the RBAC right that each request needs, and answers some with
faults.

It can be started late; until then its port refuses connections.
"""

import asyncio
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.clients import KubernetesClient
from processkube.testing.ports import free_port

Right = tuple[str, str, str]
"""API group, resource (with its subresource) and verb."""

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def right_of(method: str, path: str, *, watches: bool) -> Right | None:
    """Return the right that RBAC demands for a request; None for discovery, which everybody may read."""
    parts = [part for part in path.split("/") if part]
    if not parts or parts[0] not in {"api", "apis"}:
        return None
    group = "" if parts[0] == "api" else parts[1] if len(parts) > 1 else ""
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    if not rest:
        return None
    named = len(rest) > 1
    verb = _VERBS.get(method) or ("watch" if watches else "get" if named else "list")
    return group, "/".join([rest[0], *rest[2:3]]), verb


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as the function that chooses faults sees it; `number` counts all requests."""

    method: str
    path: str
    watches: bool
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The fault of a request: it is refused with a `status`, or its answer is cut, slowed down or replaced."""

    status: int | None = None
    reason: str = "Injected"
    retry_after: int | None = None
    cut_after: int | None = None
    """The number of bytes of the answer after which the connection is reset, though the request took effect; None for
    no reset.
    """
    slowly: bool = False
    """Whether the answer is sent in pieces of 100 bytes with pauses."""
    instead: bytes | None = None
    """A body that is sent with status 200 instead of the answer; None to send the answer."""

    def refusal(self, request: web.Request) -> web.Response:
        """Return the answer of an API server that refuses the request."""
        message = f"injected: {request.method} {request.path}"
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": self.reason, "code": self.status, "message": message}
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return web.json_response(status, status=self.status or 200, headers=headers)

    async def pieces(self, request: web.Request, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the pieces of the answer as they are sent."""
        sent = 0
        async for chunk in chunks:
            for start in range(0, len(chunk), 100 if self.slowly else len(chunk)):
                await asyncio.sleep(0.005 * self.slowly)
                piece = chunk[start : start + 100] if self.slowly else chunk
                if self.cut_after is not None and sent + len(piece) > self.cut_after:
                    assert request.transport is not None
                    request.transport.abort()
                    return
                sent += len(piece)
                yield piece


NO_FAULT = Fault()


@dataclass(slots=True)
class RecordingProxy:
    """A proxy to which `kubeconfig` leads. `asked` are the rights needed so far. It refuses the rights in `denied`, as
    RBAC does.
    """

    target: KubernetesClient
    kubeconfig: Path
    port: int
    asked: set[Right] = field(default_factory=set)
    requests: int = 0
    """The number of requests so far, including discovery."""
    denied: set[Right] = field(default_factory=set)
    fault: Callable[[Asked], Fault] = lambda asked: NO_FAULT
    answered: list[Asked] = field(default_factory=list)
    """The requests that were answered with a fault."""
    created: Counter[str] = field(default_factory=Counter)
    """The number of objects that the API created, by the path of their list, even if the answer was lost."""
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Accept requests from now on."""
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(PATIENCE_SECONDS)

    def stop(self) -> None:
        """Refuse connections again."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        runner = self._loop.run_until_complete(self._serve())
        self._loop.call_soon(started.set)
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())

    async def _serve(self) -> web.AppRunner:
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.cleanup_ctx.append(self._connected)
        app.router.add_route("*", "/{path:.*}", self._forward)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port, reuse_address=True).start()
        return runner

    async def _connected(self, app: web.Application) -> AsyncIterator[None]:
        context = ssl.create_default_context(cafile=str(self.target.session.verify))
        if self.target.session.cert is not None:
            context.load_cert_chain(*self.target.session.cert)
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        plain = {"Accept-Encoding": "identity"}  # a real API server compresses long answers
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=plain, auto_decompress=False) as session:
            app[_SESSION] = session
            yield

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        watches = request.query.get("watch") == "true"
        asked = Asked(method=request.method, path=request.path, watches=watches, number=self.requests)
        fault = self.fault(asked)
        if fault is not NO_FAULT:
            self.answered.append(asked)
        if fault.status is not None:
            return fault.refusal(request)
        if fault.instead is not None:
            return web.Response(body=fault.instead, content_type="application/json")
        needed = right_of(request.method, request.path, watches=watches)
        if needed is not None:
            self.asked.add(needed)
        if needed in self.denied:
            status = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "reason": "Forbidden",
                "code": 403,
                "message": f"{needed} is forbidden",
            }
            return web.json_response(status, status=403)
        headers = {name: value for name, value in request.headers.items() if name.lower() in {"accept", "content-type"}}
        if "Authorization" in self.target.session.headers:
            headers["Authorization"] = str(self.target.session.headers["Authorization"])
        url = f"{self.target.server}{request.raw_path}"
        body = await request.read() or None  # with an empty one a media type would be sent, which a real API server refuses
        async with request.app[_SESSION].request(request.method, url, headers=headers, data=body) as answer:
            self.created[request.path] += answer.status == 201
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.headers.get("Content-Type", "")})
            await response.prepare(request)
            async for piece in fault.pieces(request, answer.content.iter_any()):
                await response.write(piece)
            if request.transport is not None and not request.transport.is_closing():
                await response.write_eof()
            return response


_SESSION = web.AppKey("session", aiohttp.ClientSession)


@contextmanager
def recording_proxy(target: KubernetesClient, folder: Path) -> Iterator[RecordingProxy]:
    """Yield a recording proxy that is not started yet."""
    port = free_port()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "replaced-by-the-proxy"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    kubeconfig = folder / "kubeconfig-proxy"
    kubeconfig.write_text(yaml.safe_dump(document), encoding="utf-8")
    proxy = RecordingProxy(target=target, kubeconfig=kubeconfig, port=port)
    try:
        yield proxy
    finally:
        proxy.stop()
