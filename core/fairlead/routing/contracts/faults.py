"""How an instance can fail a request, and what a failure says."""

from enum import StrEnum


class Fault(StrEnum):
    """A way in which an instance failed a request."""

    UNREACHED = "unreached"
    """It accepted no connection, so that the request was not sent: only the instance can be at fault."""
    LOST = "lost"
    """It dropped the connection, or sent what is not HTTP."""
    STATUS = "status"
    """It answered a status that blames the server (5xx), or a redirect."""
    ANSWER = "answer"
    """Its answer has the status of success and says that the request failed."""
    TIMEOUT = "timeout"
    """It did not begin to answer in time."""
    STALLED = "stalled"
    """It stopped in the middle of its answer."""
    REFUSED = "refused"
    """It answered a status that blames the request (4xx)."""

    def is_like(self, other: "Fault") -> bool:
        """Whether one request may cause both faults: one engine may crash on it while another answers 500."""
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
