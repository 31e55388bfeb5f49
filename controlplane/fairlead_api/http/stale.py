"""While the database is unreachable, answers a read by repeating the last good response to the same request of the same
person, marked as stale.

Only problem documents about the database are replaced, and only for a caller whom `Identify` accepts. A caller gets no
stale response if its credential was revoked, or if it is not known while the database is unreachable. Stale responses
give their age in `age` and `x-fairlead-stale`.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import StoreBusy, StoreUnavailable

MAX_ANSWERS = 512
MAX_BYTES = 512 * 1024
MAX_AGE_SECONDS = 600.0
NEVER_STALE = ("/v1/live", "/v1/audit/verification")
"""Paths that never give stale responses: a stream, and a verification, which must be about the present audit log."""

DATABASE_PROBLEMS = (StoreUnavailable.code, StoreBusy.code)
"""Problem types that are replaced by stale responses. Problems of other dependencies, such as the Kubernetes API, are
passed on.
"""

_Key = bytes
_Answer = tuple[float, list[tuple[bytes, bytes]], bytes]


class StaleReads:
    """Middleware over GET /v1 that can repeat earlier responses: JSON lists and resources, but not streams and
    exports.
    """

    def __init__(self, app: ASGIApp, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._monotonic = monotonic
        self._answers: OrderedDict[_Key, _Answer] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        known = scope["type"] == "http" and "caller" in scope.get("state", {})
        if not known or scope["method"] != "GET" or not path.startswith("/v1/") or path.endswith(".csv") or path in NEVER_STALE:
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(self, scope, send)
        await self._app(scope, receive, exchange.send)

    def remember(self, key: _Key, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Store a good response. If more than MAX_ANSWERS are stored, the oldest one is removed."""
        self._answers[key] = (self._monotonic(), headers, body)
        self._answers.move_to_end(key)
        while len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)

    def recall(self, key: _Key) -> tuple[list[Message], int] | None:
        """Return the messages of the last good response, and its age in seconds; None if no stored response is recent
        enough.
        """
        found = self._answers.get(key)
        if found is None or self._monotonic() - found[0] > MAX_AGE_SECONDS:
            return None
        age = int(self._monotonic() - found[0])
        marks = [(b"age", str(age).encode()), (b"x-fairlead-stale", StoreUnavailable.code.encode())]
        start: Message = {"type": "http.response.start", "status": 200, "headers": [*found[1], *marks]}
        return [start, {"type": "http.response.body", "body": found[2], "more_body": False}], age


class _Exchange:
    """Watches one response: stores a good response, and replaces a database problem by an earlier response."""

    def __init__(self, cache: StaleReads, scope: Scope, send: Send) -> None:
        self._cache = cache
        self._key = _key(scope)
        self._state = scope["state"]
        self._send = send
        self._headers: list[tuple[bytes, bytes]] | None = None
        self._body = bytearray()
        self._replaced = False

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            if self._state.get("problem") in DATABASE_PROBLEMS and (stale := self._cache.recall(self._key)) is not None:
                self._replaced = True
                for part in stale[0]:
                    await self._send(part)
                return
            if message["status"] == 200:
                self._headers = list(message["headers"])
        elif self._replaced:
            return
        elif self._headers is not None:
            self._body += message.get("body", b"")
            if len(self._body) > MAX_BYTES:
                self._headers = None
            elif not message.get("more_body", False):
                self._cache.remember(self._key, self._headers, bytes(self._body))
        await self._send(message)


def _key(scope: Scope) -> _Key:
    caller: Caller = scope["state"]["caller"]
    return hashlib.sha256(b"\0".join((caller.key, scope["path"].encode(), scope["query_string"]))).digest()
