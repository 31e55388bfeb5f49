"""The ways in which an instance can fail a request, and whether they suggest a fault of the request."""

from enum import StrEnum


class Fault(StrEnum):
    """A way in which an instance failed a request."""

    UNREACHED = "unreached"
    """The instance accepted no connection, so the request was not sent: the fault is certainly the instance's."""
    LOST = "lost"
    """The instance dropped the connection, or sent something that is not HTTP."""
    STATUS = "status"
    """The instance answered a status that blames the server (5xx), or a redirect."""
    ANSWER = "answer"
    """The instance answered with a success status but the body reports an error."""
    TIMEOUT = "timeout"
    """The instance did not begin to answer in time."""
    STALLED = "stalled"
    """The instance stopped in the middle of its answer."""
    REFUSED = "refused"
    """The instance answered a status that blames the request (4xx)."""

    def is_like(self, other: "Fault") -> bool:
        """Whether one request may cause both faults: it may crash one engine and make another answer 500."""
        return _KINDS[self] == _KINDS[other]


_KINDS = {
    Fault.UNREACHED: "unreached",
    Fault.LOST: "broke",
    Fault.STATUS: "broke",
    Fault.ANSWER: "broke",
    Fault.TIMEOUT: "hung",
    Fault.STALLED: "hung",
    Fault.REFUSED: "refused",
}
