"""Renders parts of pages once for all people who view the same page.

Concurrent requests wait for one rendering, which is reused for a moment. A part may depend on the address and on the
person's role, never on the person. Before a person gets a shared part, the API checks that person's session.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from starlette.responses import Response

SECONDS = 1.0
PICTURE_SECONDS = 5.0
"""Seconds for which renderings of pictures and chart data are reused; pages request them every ten or fifteen
seconds.
"""
MOST = 512
_REUSABLE = frozenset({200, 304})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A response that is the same for everybody: status, headers and body. It can be sent any number of times."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def response(self) -> Response:
        """Return a new response with this content, because middleware changes the headers of the response that it
        sends.
        """
        return Response(self.body, self.status, dict(self.headers))


class Fragments:
    """Keeps rendered responses by key for a while.

    Failures are not shared: after a failure, each waiting request renders the response again for itself.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._known: dict[Hashable, tuple[float, asyncio.Task[Fragment | None]]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Response]], seconds: float = SECONDS) -> Response:
        """Return the response of `make`, or the response for another request with the same `key` if it is at most
        `seconds` old.

        Raises the errors of `make`.
        """
        now = self._monotonic()
        known = self._known.get(key)
        if known is not None and (not known[1].done() or now - known[0] < seconds):
            found = await _outcome(known[1])
            return found.response() if found else await make()
        if len(self._known) >= MOST:
            self._known = {name: item for name, item in self._known.items() if now - item[0] < PICTURE_SECONDS}
        task = asyncio.ensure_future(_rendered(make))
        self._known[key] = (now, task)
        try:
            found = await asyncio.shield(task)
        except Exception:
            self._known.pop(key, None)
            raise
        if found is None:
            self._known.pop(key, None)
            return await make()
        return found.response()


async def _rendered(make: Callable[[], Awaitable[Response]]) -> Fragment | None:
    answer = await make()
    if answer.status_code not in _REUSABLE:
        return None
    headers = tuple((name, value) for name, value in answer.headers.items() if name != "content-length")
    return Fragment(status=answer.status_code, headers=headers, body=bytes(answer.body))


async def _outcome(task: "asyncio.Task[Fragment | None]") -> Fragment | None:
    """Return the task's result; None if the task failed in any way, so that the waiting request tries again and raises
    an error of its own.
    """
    await asyncio.wait({task})
    return None if task.cancelled() or task.exception() is not None else task.result()
