"""Late binding: the requests that wait in the router for one instance, and the order in which they are sent.

A request is bound to its instance only when it is dispatched; until then it can be moved. `fifo` sends requests in
order of their arrival in the queue. `longest_hit` sends the request with the most cached tokens first; but requests
that have waited longer than the age bound are sent before all others, oldest first. `slack` sends the request first
that must start soonest to meet the TTFT target. Under `slack`, requests that can no longer meet the target are sent
last, oldest first.
"""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from fairlead.routing.contracts.requests import Overtaken, RoutingRequest
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.queues.queueing import NOBODY

_SLACK = 64
"""A heap is rebuilt when the entries of requests that have left outnumber the waiting requests by more than this
number.
"""

Standing = tuple[int, float, int]
"""A sort key, lowest first, to compare the first requests of several queues: the kind of order (0 = by arrival, 1 = by
rank, 2 = late), the rank, and the arrival number.
"""


class InstanceQueue:
    """The queued requests of one instance. Adding and taking are O(log n); removing by id is O(1).

    Several queues of an instance share one counter of arrival numbers (`places`).
    """

    def __init__(
        self, discipline: str, age_bound_seconds: float, ttft_target_seconds: float = inf, places: Iterator[int] | None = None
    ) -> None:
        self._discipline = discipline
        self._age_bound = age_bound_seconds
        self._target = ttft_target_seconds
        self._entries: dict[str, tuple[int, TrackedRequest]] = {}
        """Request id → arrival number and request, oldest first."""
        self._heap: list[tuple[float, int, str]] = []
        self._late: list[tuple[int, str]] = []
        """Heap of the requests that, under `slack`, can no longer meet the TTFT target."""
        self._places = count(1) if places is None else places
        self.can_begin_again = places is None
        """Whether this queue object can be reused once it is empty; `begin_again` then has nothing to reset."""

    def begin_again(self) -> None: ...

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._entries

    def add(self, tracked: TrackedRequest) -> None:
        """Insert a request behind all requests of equal rank."""
        place = next(self._places)
        request_id = tracked.request.id
        self._entries[request_id] = (place, tracked)
        if self._discipline != "fifo":
            heappush(self._heap, (self._rank(tracked), place, request_id))
            if len(self._heap) + len(self._late) > 2 * len(self._entries) + _SLACK:  # those that left by age or id are still there
                self._heap = [item for item in self._heap if self._waits(item[1], item[2])]
                self._late = [item for item in self._late if self._waits(*item)]
                heapify(self._heap)
                heapify(self._late)

    def remove(self, request_id: str) -> None:
        """Remove the request with this id; unknown ids are ignored."""
        self._entries.pop(request_id, None)
        if not self._entries:
            self._heap.clear()
            self._late.clear()

    def take(self, now: float) -> TrackedRequest | None:
        """Remove and return the request to send next."""
        if not self._entries:
            return None
        _, tracked = self.first(now)
        self.remove(tracked.request.id)
        return tracked

    def first(self, now: float) -> tuple[Standing, TrackedRequest]:
        """Return the sort key of the request to send next, and the request. The key compares the request with the first
        requests of other queues. The queue must not be empty.
        """
        place, oldest = next(iter(self._entries.values()))
        if self._discipline == "fifo" or (self._discipline == "longest_hit" and now - oldest.waiting_since >= self._age_bound):
            return (0, 0.0, place), oldest
        while self._heap:
            rank, sequence, request_id = self._heap[0]
            entry = self._entries.get(request_id)
            if entry is None or entry[0] != sequence:
                heappop(self._heap)
            elif self._discipline == "slack" and rank < now:
                heappop(self._heap)
                heappush(self._late, (sequence, request_id))
            else:
                return (1, rank, sequence), entry[1]
        while True:
            sequence, request_id = self._late[0]
            entry = self._entries.get(request_id)
            if entry is not None and entry[0] == sequence:
                return (2, 0.0, sequence), entry[1]
            heappop(self._late)

    def find_late(self, now: float) -> Sequence[TrackedRequest]:
        """Return an empty sequence, because these disciplines do not mark requests as late."""
        return ()

    def take_in_time(self, now: float) -> TrackedRequest | None:
        """Remove and return the next request, as `take` does, because this discipline has no deadlines."""
        return self.take(now)

    def take_any(self, now: float) -> TrackedRequest | None:
        """Remove and return the next request, as `take` does, because `take` always returns a request under this
        discipline.
        """
        return self.take(now)

    def in_order(self, now: float) -> list[TrackedRequest]:
        """Return the requests in the order in which they would be sent if all were sent now."""
        if self._discipline == "fifo":
            return [tracked for _, tracked in self._entries.values()]
        waiting = list(self._entries.values())
        first: list[tuple[int, TrackedRequest]] = waiting
        rest: list[tuple[int, TrackedRequest]] = []
        if self._discipline == "longest_hit":
            overdue = 0
            while overdue < len(waiting) and now - waiting[overdue][1].waiting_since >= self._age_bound:
                overdue += 1
            first = waiting[:overdue]
            rest = sorted(waiting[overdue:], key=lambda entry: (self._rank(entry[1]), entry[0]))
        elif self._discipline == "slack":
            able = [entry for entry in waiting if self._rank(entry[1]) >= now]
            first = sorted(able, key=lambda entry: (self._rank(entry[1]), entry[0]))
            chosen = {sequence for sequence, _ in able}
            rest = [entry for entry in waiting if entry[0] not in chosen]
        return [tracked for _, tracked in (*first, *rest)]

    def lower_than(self, request: RoutingRequest) -> Overtaken:
        """Return an empty result, because all requests in this queue have the same priority."""
        return NOBODY

    def overtaken_by(self, request: RoutingRequest) -> Overtaken:
        """Return an empty result, because requests of one priority may be sent in any order."""
        return NOBODY

    def _waits(self, place: int, request_id: str) -> bool:
        """Return whether the request still waits under this arrival number. False if the request has left the queue, or
        has left and returned under another number.
        """
        return self._entries.get(request_id, (0, None))[0] == place

    def _rank(self, tracked: TrackedRequest) -> float:
        """Return the request's key in the heap, lowest first. Under `longest_hit` it is the negated number of cached
        tokens, under `slack` the latest time at which the prefill must start.
        """
        if self._discipline == "longest_hit":
            return -tracked.hit_tokens
        return tracked.request.arrived_at + self._target - tracked.prefill_microseconds / 1e6
