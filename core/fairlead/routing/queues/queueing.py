"""The interface of a queue, whatever its discipline."""

from collections.abc import Sequence
from typing import Protocol

from fairlead.routing.contracts.requests import Overtaken, RoutingRequest
from fairlead.routing.queues.accounting import TrackedRequest

NOBODY = Overtaken()


class Queue(Protocol):
    """The requests that wait for one instance, in the order of a discipline."""

    def __len__(self) -> int: ...

    def add(self, tracked: TrackedRequest) -> None:
        """Put a request into the queue."""

    def remove(self, request_id: str) -> None:
        """Remove the request with this id; unknown ids are ignored."""

    def find_late(self, now: float) -> Sequence[TrackedRequest]:
        """Mark and return the requests that can no longer meet the TTFT target, if the discipline distinguishes such
        requests.
        """

    def take(self, now: float) -> TrackedRequest | None:
        """Remove and return the request to send next; None if no request should be sent now."""

    def take_in_time(self, now: float) -> TrackedRequest | None:
        """Remove and return the next request, as `take` does, but skip requests that are already late. None if no other
        request should be sent now.
        """

    def take_any(self, now: float) -> TrackedRequest | None:
        """Remove and return a request for an idle instance; None only if no request waits."""

    def in_order(self, now: float) -> list[TrackedRequest]:
        """Return the requests in about the order in which they would be sent if no more requests arrived."""

    def lower_than(self, request: RoutingRequest) -> Overtaken:
        """Return the requests in this queue that have a lower priority than this request."""

    def overtaken_by(self, request: RoutingRequest) -> Overtaken:
        """Return the requests waiting in this queue that would be sent after this request if it arrived now, as far as
        the discipline determines their order.
        """
