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
        """Take a request out, wherever it is; unknown ids are ignored."""

    def find_late(self, now: float) -> Sequence[TrackedRequest]:
        """Sort out and return the requests that can no longer meet the TTFT target, if the discipline distinguishes
        them.
        """

    def take(self, now: float) -> TrackedRequest | None:
        """Remove and return the request to send next; None if no request should go now."""

    def take_in_time(self, now: float) -> TrackedRequest | None:
        """Like `take`, without requests that are already late."""

    def take_any(self, now: float) -> TrackedRequest | None:
        """Remove and return the request that an idle instance should compute; None only if no request waits."""

    def in_order(self, now: float) -> list[TrackedRequest]:
        """The requests in about the order in which they would be sent if no more arrived."""

    def lower_than(self, request: RoutingRequest) -> Overtaken:
        """Return the part of `overtaken_by` that has lower priority."""

    def overtaken_by(self, request: RoutingRequest) -> Overtaken:
        """Return the requests waiting here that would be sent after this request if it arrived now, as far as the
        discipline determines that.
        """
