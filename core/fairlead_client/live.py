"""Events of the live stream for people."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEvent:
    """One server-sent event: `event` is its topic and `data` its JSON text. A client that reconnects sends `id` back as
    Last-Event-ID.
    """

    event: str
    data: str
    id: str | None
