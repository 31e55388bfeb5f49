"""What comes over the stream of live events, for people."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEvent:
    """One server-sent event: `event` is the topic, `data` its JSON text, `id` what to send back as Last-Event-ID."""

    event: str
    data: str
    id: str | None
