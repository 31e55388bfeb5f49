"""Moves of sessions that are decided and not made yet."""

from fairlead.reports.bindings import BindingReason
from fairlead.values import value


@value
class PendingMove:
    """A session is to move from `source` to the instance that its request waits for, when that request is sent.

    It then needs `room_tokens` free in that instance's KV cache. The TTFTs are the predictions that it was decided by,
    at `source` (None where there was none) and where the request waits.
    """

    source: str
    reason: BindingReason
    room_tokens: int
    decided_at: float
    source_ttft_seconds: float | None
    target_ttft_seconds: float
