"""Decides when the parts of open pages are rendered again: in rounds, for all tabs that show the same page at once.

Each tab receives every event separately, a moment before or after the others, and must not render again what another
tab has just rendered. So an event belongs to a round of its page, regardless of which tab receives it first.
"""

import itertools
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from weakref import WeakValueDictionary

GAP_SECONDS, MOST_GAP_SECONDS = 0.9, 1.5
"""Minimum seconds between two rounds of a page, and the maximum of that minimum for rounds that take long because of
many viewers.
"""
RESTS = 3.0
"""Factor of the previous round's duration that gives the minimum time to the next round, up to the maximum."""
TICK_SECONDS = 10.0
"""Maximum age in seconds of content whose changes cause no event: ages, a stale database, the time on the page."""
REMEMBERED = 128
"""Number of events whose round a page remembers. A tab that receives an older event waits for a new round."""
_rounds = itertools.count(1)


class Pace:
    """The rounds of one page. `round` is the number of the last round that began, and `names` are its parts. Numbers
    are never reused.
    """

    def __init__(self) -> None:
        self.round = 0
        self.names: frozenset[str] = frozenset()
        self.gap = GAP_SECONDS
        self._begun_at = float("-inf")
        self._next = next(_rounds)
        self._due: set[str] = set()
        self._heard: OrderedDict[Hashable, int] = OrderedDict()

    def hear(self, event: Hashable, parts: Iterable[str]) -> int:
        """Return the round that shows what this event changed. If another tab received the event earlier, the round may
        have begun.
        """
        known = self._heard.get(event)
        if known is not None:
            return known
        self._due.update(parts)
        self._heard[event] = self._next
        if len(self._heard) > REMEMBERED:
            self._heard.popitem(last=False)
        return self._next

    @property
    def next_at(self) -> float:
        """The earliest time of the next round."""
        return self._begun_at + self.gap

    def begin(self, now: float) -> None:
        """Begin the next round, with all parts that are due."""
        self._begun_at, self.round, self._next = now, self._next, next(_rounds)
        self.names, self._due = frozenset(self._due), set()

    def took(self, seconds: float) -> None:
        """Record how many seconds the last round took."""
        self.gap = min(MOST_GAP_SECONDS, max(GAP_SECONDS, RESTS * seconds))


class Paces:
    """The paces of the open pages. Each pace is dropped with its page's last tab."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Hashable, Pace] = WeakValueDictionary()

    def of(self, page: Hashable) -> Pace:
        pace = self._known.get(page)
        if pace is None:
            self._known[page] = pace = Pace()
        return pace


def ticks(address: str) -> Callable[[float], tuple[int, float]]:
    """Return a page's ticks as a function of the time of day, which returns the number of the last tick and the seconds
    until the next. All tabs of a page tick together. Different pages tick at different times, so that not everything is
    rendered at once.
    """
    offset = zlib.crc32(address.encode()) % 1000 / 1000 * TICK_SECONDS

    def at(timestamp: float) -> tuple[int, float]:
        number, gone = divmod(timestamp + offset, TICK_SECONDS)
        return int(number), TICK_SECONDS - gone

    return at
