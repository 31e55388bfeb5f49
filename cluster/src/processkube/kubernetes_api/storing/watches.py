"""Watches: the events that a client's watch yields, the version from which it begins, and the time at which it ends."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from processkube.kubernetes_api.kinds.kinds import ResourceKind
from processkube.kubernetes_api.objects.errors import Expired
from processkube.kubernetes_api.objects.objects import Object, encode
from processkube.kubernetes_api.objects.selectors import Selects
from processkube.kubernetes_api.storing.representations import is_stored_form, to_external
from processkube.kubernetes_api.storing.store import EventType, Store, Stored, StoredChange

BOOKMARK_SECONDS = 60.0
DEFAULT_TIMEOUT_SECONDS = 1800.0
BACKLOG_LIMIT = 20_000
"""Maximum number of events that may wait for a slow client. If more wait, its watch is closed; the client then lists
the objects again and begins a new watch.
"""

Transform = Callable[[Object], Object]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """The parameters of one watch."""

    kind: ResourceKind
    namespace: str = ""
    selects: Selects | None = None
    resource_version: str = ""
    bookmarks: bool = False
    initial_events: bool | None = None
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    transform: Transform | None = None
    """A function that turns an object into the form that the client wants (Table or PartialObjectMetadata); None =
    objects are sent unchanged.
    """


class Watch:
    """One watch of a client. `lines` yields its events, and `close` ends it."""

    def __init__(self, store: Store, request: WatchRequest) -> None:
        self._store = store
        self._request = request
        self._backlog: deque[StoredChange] = deque()
        self._wake = asyncio.Event()
        self._closed = False

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield encoded events, one or more lines at a time, until the timeout, a call of `close`, or an error
        event.
        """
        request = self._request
        resource = request.kind.storage
        unsubscribe = self._store.subscribe(self._note)
        deadline = time.monotonic() + request.timeout_seconds
        bookmark_at = time.monotonic() + BOOKMARK_SECONDS
        try:
            try:
                start = self._start()
            except Expired as error:
                yield encode({"type": "ERROR", "object": error.status()}) + b"\n"
                return
            seen = self._store.version if start is None else start
            if initial := self._initial(start):
                yield initial
            if start is not None:
                self._backlog = deque(self._store.changes_since(resource, start))
            while True:
                if len(self._backlog) > BACKLOG_LIMIT:
                    return
                lines, seen = self._drain(seen)
                if lines:
                    yield lines
                now = time.monotonic()
                ends = self._closed or now >= deadline
                # Only with nothing waiting: a bookmark promises that everything before it was sent.
                if request.bookmarks and not self._backlog and not self._closed and (ends or now >= bookmark_at):
                    bookmark_at = now + BOOKMARK_SECONDS
                    yield self._bookmark(self._store.version)
                if ends:
                    return
                await self._wait(min(deadline, bookmark_at) - now)
        finally:
            unsubscribe()

    def _note(self, change: StoredChange) -> None:
        if change.now.resource == self._request.kind.storage:
            self._backlog.append(change)
            self._wake.set()

    async def _wait(self, seconds: float) -> None:
        if self._backlog or self._closed:
            return
        self._wake.clear()
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._wake.wait()
        except TimeoutError:
            return

    def _start(self) -> int | None:
        """Return the resource version from which the watch resumes; None if it begins with all existing objects. Raises
        Expired.
        """
        request = self._request
        text = request.resource_version
        if request.initial_events or text in {"", "0"}:
            return None
        version = int(text)
        oldest = self._store.oldest_resumable(request.kind.storage)
        if version < oldest:
            raise Expired(f"too old resource version: {version} ({oldest})")
        if version > self._store.version:  # the real server waits for it; here the state was deleted, and it may never come
            raise Expired(f"too large resource version: {version}, current: {self._store.version}")
        return version

    def _initial(self, start: int | None) -> bytes:
        request = self._request
        if start is not None:
            return b""
        lines: list[bytes] = []
        if request.initial_events is not False:
            found = self._store.list(request.kind.storage, request.namespace)
            chosen = request.selects or (lambda _item: True)
            lines += [self._line(EventType.ADDED, one) for one in found if chosen(to_external(request.kind, one.object))]
        if request.initial_events and request.bookmarks:
            lines.append(self._bookmark(self._store.version, initial_end=True))
        return b"".join(lines)

    def _drain(self, seen: int) -> tuple[bytes, int]:
        lines = []
        while self._backlog:
            change = self._backlog.popleft()
            if change.version > seen:
                seen = change.version
                if line := self._event(change):
                    lines.append(line)
        return b"".join(lines), seen

    def _event(self, change: StoredChange) -> bytes | None:
        """Return the encoded event for a change, as the watch's selectors see it; None if they do not see the change.

        If an object no longer matches the selectors, the event is a deletion with the object's last matching state. If
        an object begins to match, the event is an addition.
        """
        request, now = self._request, change.now
        if request.namespace and now.namespace != request.namespace:
            return None
        kind = change.type
        if request.selects is not None:
            matches = kind is not EventType.DELETED and request.selects(to_external(request.kind, now.object))
            before = change.before
            matched = before is not None and request.selects(to_external(request.kind, before.object))
            if not matches and not matched:
                return None
            if matches != matched:
                kind = EventType.ADDED if matches else EventType.DELETED
            if before is not None and kind is EventType.DELETED and kind is not change.type:
                now = before.at(change.version)
        if kind is change.type and request.transform is None and is_stored_form(request.kind):
            if not change.line:
                change.line = self._line(kind, now)
            return change.line
        return self._line(kind, now)

    def _line(self, kind: EventType, stored: Stored) -> bytes:
        request = self._request
        if request.transform is None and is_stored_form(request.kind):
            body = stored.body
        else:
            item = to_external(request.kind, stored.object)
            body = encode(request.transform(item) if request.transform else item)
        return b'{"type":"' + kind.value.encode() + b'","object":' + body + b"}\n"

    def _bookmark(self, version: int, *, initial_end: bool = False) -> bytes:
        kind = self._request.kind
        metadata: Object = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        item: Object = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        if self._request.transform is not None:
            item = self._request.transform(item)
        return encode({"type": "BOOKMARK", "object": item}) + b"\n"
