"""Finds errors in answers that have a success status, for requests that bypass the scheduler."""

from __future__ import annotations

from fairlead_router.protocols.answers import StreamReader, decoded
from fairlead_router.protocols.spoken_events import Failure, failure_of

EVENTS = b"text/event-stream"
"""The beginning of the content type of a stream of events."""

LONGEST_ERROR = 64 * 1024
"""Maximum number of bytes of a document that may be an error. A longer document is an answer."""

_BLANK = b" \t\r\n"
_OF_ERRORS = frozenset({"error", "type", "request_id", "code", "status"})


class SideAnswer:
    """Reads an answer with the content type `kind` while it passes. Call `feed` with each piece; then read `failure`.

    An answer is one document, or a stream of events. The formats of these answers differ between engines, so an answer
    fails only if it contains an error; a missing end is not a failure.
    """

    __slots__ = ("_document", "_events", "_size")

    def __init__(self, kind: bytes) -> None:
        self._events = StreamReader() if kind.startswith(EVENTS) else None
        self._document: bytearray | None = bytearray() if self._events is None else None
        """The bytes of a document, without blanks at its beginning. None for a stream, and when the document cannot be
        an error.
        """
        self._size = 0

    def feed(self, piece: bytes) -> None:
        """Read the next piece."""
        self._size += len(piece)
        if self._events is not None:
            self._events.feed(piece)
        elif self._document is not None:
            self._document += piece if self._document else piece.lstrip(_BLANK)
            if self._size > LONGEST_ERROR or bytes(self._document[:1]) not in (b"", b"{"):
                self._document = None

    @property
    def is_open(self) -> bool:
        """Whether more of the answer must arrive to see whether it begins with an error."""
        if self._events is None:
            return self._document is not None
        return not self._events.events and self._size <= LONGEST_ERROR

    @property
    def failure(self) -> Failure | None:
        """The failure that the answer has reported so far; None if there is none."""
        if self._events is not None:
            return self._events.failure
        return None if self._document is None else reported_error(bytes(self._document))


def reported_error(body: bytes) -> Failure | None:
    """Return the failure that a document reports instead of an answer; None for any other bytes."""
    document = decoded(body) if len(body) <= LONGEST_ERROR and body.lstrip(_BLANK).startswith(b"{") and b'"error"' in body else None
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    is_error = document.get("object") == "error" or (error and not any(given for name, given in document.items() if name not in _OF_ERRORS))
    return failure_of(error or document) if is_error else None
