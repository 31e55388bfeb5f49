"""Requests at a steady rate, whether or not earlier ones are answered, spread over routers as a load balancer spreads
them.

If a router refuses the connection, the request goes to the next router, because no router has seen it yet. A request
that was sent is never sent again. Every request opens its own connection.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from fairlead_testing.waiting import PATIENCE_SECONDS

MOST_REQUESTS = 12_000
SESSIONS = 24
ANSWER_TOKENS = 400
"""Output tokens of an answer: enough that a router which is killed has requests in flight."""


@dataclass(slots=True)
class SentRequest:
    """A sent request. Times are seconds of the monotonic clock. `problem` is empty if the request was served."""

    started_at: float
    router: str = ""
    ended_at: float | None = None
    problem: str = ""


@dataclass(slots=True)
class BalancedLoad:
    """Sends a request every `pause_seconds` until it is stopped, at most MOST_REQUESTS."""

    urls: Mapping[str, str]
    """The URL of each router, by the router's name."""
    model: str
    pause_seconds: float = 0.2
    requests: list[SentRequest] = field(default_factory=list)
    _ending: threading.Event = field(default_factory=threading.Event)

    @property
    def served(self) -> int:
        return sum(1 for request in self.requests if request.ended_at is not None and not request.problem)

    @property
    def failed(self) -> list[SentRequest]:
        return [request for request in self.requests if request.problem]

    def under_way(self, router: str) -> int:
        """Return the number of requests that were sent to this router and have not ended."""
        return sum(1 for request in self.requests if request.router == router and request.ended_at is None)

    def run(self) -> None:
        """Send requests until `end` is called, then return when every request has ended."""
        asyncio.run(self._run())

    def end(self) -> None:
        self._ending.set()

    async def _run(self) -> None:
        async with (
            httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS, limits=httpx.Limits(max_keepalive_connections=0)) as client,
            asyncio.TaskGroup() as tasks,
        ):
            for number in range(MOST_REQUESTS):
                if self._ending.is_set():
                    break
                request = SentRequest(started_at=time.monotonic())
                self.requests.append(request)
                tasks.create_task(self._send(client, number, request))
                await asyncio.sleep(self.pause_seconds)

    async def _send(self, client: httpx.AsyncClient, number: int, request: SentRequest) -> None:
        turn, session = divmod(number, SESSIONS)
        text = f"session {session} " * 40 + f"turn {turn}"
        document = {"model": self.model, "messages": [{"role": "user", "content": text}], "max_tokens": ANSWER_TOKENS}
        names = tuple(self.urls)
        try:
            for router in itertools.islice(itertools.cycle(names), number % len(names), number % len(names) + len(names)):
                request.router = router
                try:
                    answer = await client.post(
                        f"{self.urls[router]}/v1/chat/completions", json=document, headers={"x-session-id": f"s{session}"}
                    )
                except httpx.ConnectError:
                    continue
                if answer.status_code != 200:
                    request.problem = f"{answer.status_code} {answer.text[:200]}"
                return
            request.problem = "no router took the connection"
        except httpx.HTTPError as error:
            request.problem = f"{type(error).__name__} {error}"
        finally:
            request.ended_at = time.monotonic()


@contextmanager
def balanced_load(urls: Mapping[str, str], model: str) -> Iterator[BalancedLoad]:
    """Run a load in a thread of its own until the block ends; after the block, every request has ended."""
    load = BalancedLoad(urls, model)
    thread = threading.Thread(target=load.run, name="load")
    thread.start()
    try:
        yield load
    finally:
        load.end()
        thread.join()
