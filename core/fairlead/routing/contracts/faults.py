"""The ways in which an instance can fail a request, and which of them the request itself may have caused."""

from enum import StrEnum


class Fault(StrEnum):
    """A way in which an instance failed a request."""

    UNREACHED = "unreached"
    """The instance accepted no connection, so the request was not sent. The request cannot be the cause."""
    LOST = "lost"
    """The instance dropped the connection, or sent something that is not HTTP."""
    STATUS = "status"
    """The instance responded with a status that blames the server (5xx), or with a redirect."""
    ANSWER = "answer"
    """The instance responded with a success status, but the body reports an error."""
    TIMEOUT = "timeout"
    """The instance did not begin to respond in time."""
    STALLED = "stalled"
    """The instance stopped in the middle of its response."""
    REFUSED = "refused"
    """The instance responded with a status that blames the request (4xx)."""

    def is_like(self, other: "Fault") -> bool:
        """Return whether a single request may cause both faults. For example, a request may crash one engine and make
        another respond with status 500.
        """
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
