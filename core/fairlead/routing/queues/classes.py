"""Priority classes in the queue of an instance: one queue of the pool's discipline for each priority.

Priority is strict: while a request of a higher class waits, no request of a lower class is sent. This holds even if the
request of the higher class is delayed for the instance's decodes or is already late. So a lower class gets only the
time that the higher classes leave. In an overloaded pool there may be no such time. The requests of the lower class
then wait until the queue's time limit and are refused. In the `deadline` discipline late requests wait for spare time;
the time of lower classes counts as spare.

The danger is the count of the requests that a new request overtakes, because policies and early rejection use it for
predictions. A request of a higher class overtakes all requests of lower classes. If a request of a lower class stays
counted after it has left, its instance looks free to higher classes. (`discrepancies` in the tests counts again.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import add

from fairlead.priority_classes import PriorityClasses
from fairlead.routing.contracts.requests import Overtaken, RoutingRequest
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.queues.queueing import NOBODY, Queue

Build = Callable[[int, Callable[[], bool], Callable[[TrackedRequest], None]], Queue]
"""A function that makes the empty queue of one rank (0 = the highest priority). It gets the rank, a function that
returns whether requests of lower priority wait, and a callback for late requests.
"""


@dataclass(slots=True)
class _Band:
    """The waiting requests of one priority: their queue, their number and their total predicted time."""

    queue: Queue
    requests: int = 0
    microseconds: int = 0
    late_microseconds: int = 0


class ClassQueues:
    """The requests that wait for one instance, by priority. Taking a request costs as much as taking it from the queue
    of the highest class that waits.
    """

    def __init__(self, classes: PriorityClasses, build: Build) -> None:
        self._classes = classes
        self._build = build
        self._bands: dict[int, _Band] = {}
        """The requests of each rank (0 is the highest priority), in order of rank."""
        self._waiting: dict[str, tuple[int, TrackedRequest]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, tracked: TrackedRequest) -> None:
        """Put a request into the queue of its priority."""
        rank = self._classes.rank(tracked.request.priority_class)
        band = self._bands.get(rank)
        if band is None:
            band = self._new_band(rank)
        band.requests += 1
        band.microseconds += tracked.prefill_microseconds
        self._waiting[tracked.request.id] = (rank, tracked)
        band.queue.add(tracked)

    def remove(self, request_id: str) -> None:
        """Remove the request with this id, whichever priority it has; unknown ids are ignored."""
        found = self._waiting.get(request_id)
        if found is not None:
            self._bands[found[0]].queue.remove(request_id)
            self._left(request_id)

    def find_late(self, now: float) -> Sequence[TrackedRequest]:
        """Mark and return the requests that can no longer meet the TTFT target, if the discipline distinguishes such
        requests.
        """
        return [tracked for band in tuple(self._bands.values()) for tracked in band.queue.find_late(now)]

    def take(self, now: float) -> TrackedRequest | None:
        """Remove and return the next request of the highest priority that waits; None if this request must not be sent
        now.
        """
        band = self._highest()
        return None if band is None else self._taken(band.queue.take(now))

    def take_in_time(self, now: float) -> TrackedRequest | None:
        """Remove and return the next request of the highest priority that waits, as `take` does, but skip late
        requests. None if there is no such request.
        """
        band = self._highest()
        return None if band is None else self._taken(band.queue.take_in_time(now))

    def take_any(self, now: float) -> TrackedRequest | None:
        """Remove and return the next request of the highest priority that waits, for an instance that is idle."""
        band = self._highest()
        return None if band is None else self._taken(band.queue.take_any(now))

    def in_order(self, now: float) -> list[TrackedRequest]:
        """Return the requests in about the order in which they would be sent if no more requests arrived."""
        return [tracked for band in self._bands.values() for tracked in band.queue.in_order(now)]

    def overtaken_by(self, request: RoutingRequest) -> Overtaken:
        """Return the waiting requests that this request would overtake: all requests of lower priority, and the
        requests of its own priority that its queue's discipline would send later.
        """
        lower = self.lower_than(request)
        own = self._bands.get(self._classes.rank(request.priority_class))
        return lower if own is None else Overtaken(*map(add, lower, own.queue.overtaken_by(request)))

    def lower_than(self, request: RoutingRequest) -> Overtaken:
        """Return the waiting requests of lower priority than this request."""
        rank = self._classes.rank(request.priority_class)
        requests, microseconds, late_microseconds = NOBODY
        for other, band in self._bands.items():
            if other > rank:
                requests += band.requests
                microseconds += band.microseconds
                late_microseconds += band.late_microseconds
        return Overtaken(requests, microseconds, late_microseconds)

    def _highest(self) -> _Band | None:
        return next((band for band in self._bands.values() if band.requests), None)

    def _new_band(self, rank: int) -> _Band:
        def lower_waits() -> bool:
            return any(band.requests for other, band in self._bands.items() if other > rank)

        def found_late(tracked: TrackedRequest) -> None:
            self._bands[rank].late_microseconds += tracked.prefill_microseconds

        band = _Band(self._build(rank, lower_waits, found_late))
        self._bands = dict(sorted([*self._bands.items(), (rank, band)], key=lambda item: item[0]))
        return band

    def _taken(self, tracked: TrackedRequest | None) -> TrackedRequest | None:
        if tracked is not None:
            self._left(tracked.request.id)
        return tracked

    def _left(self, request_id: str) -> None:
        rank, tracked = self._waiting.pop(request_id)
        band = self._bands[rank]
        band.requests -= 1
        band.microseconds -= tracked.prefill_microseconds
        if tracked.late:
            band.late_microseconds -= tracked.prefill_microseconds
