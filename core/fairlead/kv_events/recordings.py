"""The content of an engine's recording: its batches of events and its finished requests, in the recorder's time."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.kv_events.events import KvEvent
from fairlead.kv_events.sources import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBatch:
    """A batch of events. `arrived` is the time of arrival in seconds by the recorder's clock; `stamp` is the engine's
    timestamp.
    """

    source: Source
    number: int
    arrived: float
    stamp: float
    events: Sequence[KvEvent]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """A request that the engine finished. Times are in seconds by the recorder's clock; `cached_tokens` is the engine's
    own count.
    """

    name: int | str
    """The request's name in the recording."""
    sent: float
    done: float
    prompt_token_ids: Sequence[int]
    output_token_ids: Sequence[int] = ()
    cached_tokens: int
    instance: str | None = None
    """The instance to which the request was sent; None if the recording does not name it."""
    lora_name: str | None = None
    cache_salt: str | None = None
