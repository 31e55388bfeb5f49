"""Parts of pages, rendered once for all who look at the same ones: concurrent askers wait for one rendering,
which serves a moment longer.

A part may depend on the address and on the role, never on the person; whoever is given a shared part was
asked for by name before.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from starlette.responses import Response

SECONDS = 1.0
MOST = 512
_REUSABLE = frozenset({200, 304})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """An answer without its person: status, headers and body, to be sent any number of times."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def response(self) -> Response:
        """A fresh response; middleware changes the headers of the one it sends."""
        return Response(self.body, self.status, dict(self.headers))


class Fragments:
    """Renderings by key for `seconds`. A failure belongs to whoever met it: the others render for themselves."""

    def __init__(self, seconds: float = SECONDS, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._known: dict[Hashable, tuple[float, asyncio.Task[Fragment | None]]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Response]]) -> Response:
        """The answer of `make`, its own or another's of the last moment. Raises what `make` raises."""
        now = self._monotonic()
        known = self._known.get(key)
        if known is not None and (not known[1].done() or now - known[0] < self._seconds):
            found = await _outcome(known[1])
            return found.response() if found else await make()
        if len(self._known) >= MOST:
            self._known = {name: item for name, item in self._known.items() if now - item[0] < self._seconds}
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
    """None when it failed: whatever that was, the asker tries for itself and meets it in its own name."""
    await asyncio.wait({task})
    return None if task.cancelled() or task.exception() is not None else task.result()
