"""Moves of sessions that are decided: why, and those that are not made yet."""

from fairlead.reports.moves import MoveCause
from fairlead.values import value

Ttfts = tuple[float | None, float]
"""Predicted TTFTs in seconds: for staying (None if unpredictable) and for moving."""


@value
class Departure:
    """Why a session leaves its home, with what was predicted and weighed for it.

    `hits` are the tokens of the prompt that its home and the other instance were taken to hold. `ttfts` and `hits` are
    None where they are to be asked of the view when the move is recorded.
    """

    cause: MoveCause
    ttfts: Ttfts | None = None
    hits: tuple[int, int] | None = None


@value
class PendingMove:
    """A session is to move from `source` to the instance that its request waits for, when that request is sent.

    It then needs `room_tokens` free in that instance's KV cache.
    """

    source: str
    departure: Departure
    room_tokens: int
    decided_at: float
