"""Estimates which sessions are worth copying to another cache before their instance is removed. The pauses between
turns give the probability of a next turn. From this probability follows the expected number of tokens that the next
turn would have to compute again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import log2

SOON_SECONDS = 300.0
"""A next turn counts only if it is expected within this many seconds. Before a later turn, the new cache would evict
the copied tokens.
"""
OVERHEAD_TOKENS = 512
"""Fixed cost of copying one session, in tokens. It is added to the length of the session's prompt."""
FORGET_AT = 4096
"""Number of counted pauses and ends at which all counts are halved, so that recent sessions have more weight."""
_STEPS_PER_DOUBLING = 2
_EDGES = tuple(2 ** (step / _STEPS_PER_DOUBLING) for step in range(25 * _STEPS_PER_DOUBLING))
"""Bounds in seconds of the classes into which pauses are sorted by length, from one second to half a year."""


def _class_of(seconds: float) -> int:
    return min(len(_EDGES) - 1, max(0, int(log2(max(1.0, seconds)) * _STEPS_PER_DOUBLING)))


class NextTurns:
    """Pauses between turns of a pool's sessions, sorted into classes by length. Each class has two counts: pauses of
    this length that a turn followed, and sessions that ended, so that no turn followed.
    """

    def __init__(self) -> None:
        self._came = [0.0] * len(_EDGES)
        self._ended = [0.0] * len(_EDGES)
        self._counted = 0.0

    def came(self, pause_seconds: float) -> None:
        """Record a turn that arrived `pause_seconds` after the previous turn of its session."""
        self._count(self._came, pause_seconds)

    def ended(self, pause_seconds: float) -> None:
        """Record that a session had no turn for this many seconds and is no longer followed."""
        self._count(self._ended, pause_seconds)

    def _count(self, counts: list[float], seconds: float) -> None:
        counts[_class_of(seconds)] += 1.0
        self._counted += 1.0
        if self._counted >= FORGET_AT:
            self._came = [count / 2 for count in self._came]
            self._ended = [count / 2 for count in self._ended]
            self._counted /= 2

    def likelihood(self, idle_seconds: float, soon_seconds: float = SOON_SECONDS) -> float:
        """Return, among sessions idle for `idle_seconds`, the share that had a turn within the next `soon_seconds`;
        between 0 and 1.

        Laplace's rule adds one turn and one ended session to the counts. So without observations, the likelihood falls
        with the idle time.
        """
        first, last = _class_of(idle_seconds), _class_of(idle_seconds + soon_seconds)
        came = sum(self._came[first : last + 1])
        later = sum(self._came[last + 1 :]) + sum(self._ended[first:])
        return (came + soon_seconds / (soon_seconds + idle_seconds)) / (came + later + 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """A session whose instance is to be removed: its number of cached tokens, and the seconds since its last turn."""

    name: str
    tokens: int
    idle_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """A session, the likelihood of its next turn, and the number of tokens that a copy of it is expected to save: its
    cached tokens × that likelihood.
    """

    session: Leaving
    likelihood: float

    @property
    def tokens(self) -> float:
        return self.session.tokens * self.likelihood

    @property
    def per_token(self) -> float:
        """Expected saving in tokens per token of cost."""
        return self.tokens / (self.session.tokens + OVERHEAD_TOKENS)


def ranked(sessions: Iterable[Leaving], turns: NextTurns, *, fetched: bool = False) -> list[Worth]:
    """Return the sessions in the order in which copying them saves the most for a limited budget. If the budget is in
    tokens, the saving per token of cost decides. If the budget is in time (`fetched`), the saving itself decides,
    because fetching takes about equally long for each session. Sessions without tokens are left out.
    """
    found = (Worth(session=one, likelihood=turns.likelihood(one.idle_seconds)) for one in sessions if one.tokens > 0)
    if fetched:
        return sorted(found, key=lambda worth: (-worth.tokens, worth.session.name))
    return sorted(found, key=lambda worth: (-worth.per_token, -worth.tokens, worth.session.name))
