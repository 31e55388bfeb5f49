"""Session migrations and re-routes: the moved session or request, the reason, and whether the move was faster than
staying.
"""

from dataclasses import dataclass
from datetime import datetime

from fairlead.reports import moves
from fairlead.reports.bindings import BindingReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Move(moves.Move[str, datetime]):
    """The fields that migrations and re-routes share: the router's record, the router's id, and conclusions drawn from
    the record.
    """

    pool: str
    at: datetime
    router: str
    explanation: str
    """Sentences about the moved session or request, the reason, the predicted gain and the actual gain; made from the
    other fields.
    """
    paid_off: bool | None
    """Whether the move was worth it.

    False if the actual TTFT was not below the TTFT predicted for staying; true if it was below and a gain had been
    predicted; otherwise None.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration(Move):
    """A move of a session from one instance to another, which is a step of the session's history.

    `request` is the request that carried the move, None if no request did.
    """

    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReRoute(Move):
    """A queued or unbound request that went to another instance; no session's binding moved.

    `session` is only the session that the request named.
    """

    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationFlow:
    source: str
    target: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesEffect:
    """The effect of moves: the number of moves that were faster than staying, the number that were not, and the number
    for which this is unknown.

    `seconds_won` is the TTFT predicted for staying minus the actual TTFT, summed over the `compared` moves that have
    both figures. It is below zero if the moves were slower.
    """

    paid_off: int
    not_paid_off: int
    unknown: int
    compared: int
    seconds_won: float
    tokens_moved: int
    tokens_recomputed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationMatrix:
    """Flows between instances, of migrations or of re-routes, and their effect.

    At most the newest 10,000 moves of the range are counted. `complete` says whether these are all moves of the range;
    otherwise all moves since `counted_from` are counted.
    """

    flows: list[MigrationFlow]
    by_trigger: dict[BindingReason, int]
    timeline: list["TimelineBucket"]
    total: int
    effect: MovesEffect
    complete: bool = True
    counted_from: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineBucket:
    at: datetime
    counts: dict[BindingReason, int]
