"""Moves of sessions: the reason for a move, and moves that are decided but not yet made."""

from fairlead.reports.moves import MoveCause
from fairlead.values import value

Ttfts = tuple[float | None, float]
"""Predicted TTFTs in seconds: if the session stays (None if it cannot be predicted), and if the session moves."""


@value
class Departure:
    """The reason why a session leaves its instance, with the values that were predicted and compared for the move.

    `hits` are the prompt tokens that the home and the new instance were assumed to hold. If `ttfts` or `hits` is None,
    its values are taken from the view when the move is recorded.
    """

    cause: MoveCause
    ttfts: Ttfts | None = None
    hits: tuple[int, int] | None = None


@value
class PendingMove:
    """A decided move of a session from `source` to the instance for which its request waits. The session moves when
    that request is sent, provided that the instance's KV cache then has `room_tokens` free.
    """

    source: str
    departure: Departure
    room_tokens: int
    decided_at: float
