"""Sends cases that Schemathesis derives from the OpenAPI document to an API in this process, with each role and with
none.
"""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import requests

from fairlead_testing.running.api import SECRETS
from fairlead_testing.running.public_doors import real_door
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport
from fairlead_testing.waiting import PATIENCE_SECONDS

ROLES = (None, "unknown", *SECRETS)
"""No token, an unknown token, and every role."""

ENDLESS = ("text/event-stream", "application/x-ndjson")


@dataclass(frozen=True, kw_only=True)
class FuzzedApi:
    """An API on Postgres with a few objects of every kind, in an event loop of its own thread."""

    loop: asyncio.AbstractEventLoop
    http: httpx.AsyncClient
    ids: dict[str, str]
    """Ids of existing objects, by the name of the path parameter that takes them."""

    def send(self, case: Any, role: str | None) -> httpx.Response:
        """Send a case with the token of a role and return the answer; of an endless answer only the beginning."""
        prepared = requests.Request(**_of_requests(case)).prepare()
        headers = [(name, value) for name, value in prepared.headers.items() if name.lower() not in {"authorization", "content-length"}]
        if role is not None:
            headers.append(("authorization", f"Bearer {SECRETS.get(role, 'flt_unknown')}"))
        body = prepared.body.encode() if isinstance(prepared.body, str) else prepared.body
        assert prepared.method is not None
        sent = self._answered(prepared.method, str(prepared.url), [(_bytes(name), _bytes(value)) for name, value in headers], body)
        return asyncio.run_coroutine_threadsafe(sent, self.loop).result(PATIENCE_SECONDS)

    async def _answered(self, method: str, url: str, headers: Any, body: Any) -> httpx.Response:
        async with self.http.stream(method, url, headers=headers, content=body) as response:
            endless = response.headers.get("content-type", "").startswith(ENDLESS)
            content = b"" if endless else await response.aread()
            whole = httpx.Response(response.status_code, headers=response.headers, content=content, request=response.request)
            whole.elapsed = timedelta()  # Schemathesis wants one
            return whole


@contextmanager
def fuzzed_api(database_url: str) -> Iterator[FuzzedApi]:
    """Run the API until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    ended = asyncio.Event()
    made: asyncio.Future[FuzzedApi] = loop.create_future()

    async def live() -> None:
        async with real_door(database_url) as door:
            transport = door.heard.inner
            assert isinstance(transport, StreamingAsgiTransport)
            async with httpx.AsyncClient(base_url="http://api.test", transport=transport, timeout=PATIENCE_SECONDS) as http:
                plan = await door.operator.create_scale_plan(door.pool, door.replicas + 1)
                made.set_result(FuzzedApi(loop=loop, http=http, ids={**IDS, "plan_id": plan.id}))
                await ended.wait()

    async def fetched() -> FuzzedApi:
        return await made

    running = asyncio.run_coroutine_threadsafe(live(), loop)

    def failed(done: "Future[None]") -> None:
        if (error := done.exception()) is not None and not made.done():
            loop.call_soon_threadsafe(made.set_exception, error)

    running.add_done_callback(failed)
    try:
        yield asyncio.run_coroutine_threadsafe(fetched(), loop).result(PATIENCE_SECONDS)
    finally:
        loop.call_soon_threadsafe(ended.set)
        running.result(PATIENCE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_SECONDS)
        loop.close()


IDS = {
    "namespace": "default",
    "pool": "chat",
    "name": "chat",
    "instance": "a",
    "session": "s1",
    "migration_id": "m-1",
    "reroute_id": "q-1",
    "decision_id": "d-1",
    "entry_id": "1",
}


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1", "replace")


def _of_requests(case: Any) -> dict[str, Any]:
    known = ("method", "url", "headers", "files", "data", "params", "auth", "cookies", "hooks", "json")
    return {name: value for name, value in case.as_transport_kwargs(base_url="http://api.test").items() if name in known}
