"""Late binding: the requests that wait in the router for one instance, and the order in which they are sent.

A request is only bound for good when it is dispatched; until then it can be moved. `fifo` sends by arrival in the queue; `longest_hit` sends the most
cached tokens first, but what waited longer than the age bound goes before all others, oldest first.
"""

from collections.abc import Iterator
from heapq import heappop, heappush

from fairlead.routing.accounting import TrackedRequest


class InstanceQueue:
    """Queued requests of one instance. Adding and taking are O(log n); removing by id is O(1)."""

    def __init__(self, discipline: str, age_bound_seconds: float) -> None:
        self._longest_hit = discipline == "longest_hit"
        self._age_bound = age_bound_seconds
        self._entries: dict[str, tuple[int, TrackedRequest]] = {}
        self._heap: list[tuple[int, int, str]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._entries

    def add(self, tracked: TrackedRequest) -> None:
        """Put a request behind those of its rank."""
        self._sequence += 1
        request_id = tracked.request.id
        self._entries[request_id] = (self._sequence, tracked)
        if self._longest_hit:
            heappush(self._heap, (-tracked.hit_tokens, self._sequence, request_id))

    def remove(self, request_id: str) -> None:
        """Take a request out wherever it stands; unknown ids are ignored."""
        self._entries.pop(request_id, None)
        if not self._entries:
            self._heap.clear()

    def take(self, now: float) -> TrackedRequest | None:
        """Remove and return the request to send next."""
        if not self._entries:
            return None
        _, oldest = next(iter(self._entries.values()))
        if not self._longest_hit or now - oldest.waiting_since >= self._age_bound:
            self.remove(oldest.request.id)
            return oldest
        while True:
            _, sequence, request_id = heappop(self._heap)
            entry = self._entries.get(request_id)
            if entry is not None and entry[0] == sequence:
                self.remove(request_id)
                return entry[1]

    def in_order(self, now: float) -> Iterator[TrackedRequest]:
        """The requests in the order they would be sent if none came and time stood still."""
        if not self._longest_hit:
            for _, tracked in self._entries.values():
                yield tracked
            return
        overdue = 0
        for _, tracked in self._entries.values():
            if now - tracked.waiting_since < self._age_bound:
                break
            overdue += 1
            yield tracked
        rest = list(self._entries.values())[overdue:]
        for _, tracked in sorted(rest, key=lambda entry: (-entry[1].hit_tokens, entry[0])):
            yield tracked
