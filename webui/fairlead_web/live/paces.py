"""Decides when the parts of open pages are rendered again: in rounds, for all tabs that show the same page at once.

Each tab hears every event separately, a moment before or after the others. A tab that kept time alone would render what
another has just rendered; so an event belongs to a round of its page, whichever tab hears it first.
"""

import itertools
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from weakref import WeakValueDictionary

GAP_SECONDS, MOST_GAP_SECONDS = 0.9, 1.5
"""Least time between two rounds of a page, and where they take long, as with many people looking."""
RESTS = 3.0
"""The time between two rounds is at least this many times the duration of the former, up to the most."""
TICK_SECONDS = 10.0
"""What no event reports (ages, a stale database, the time that the page shows) is at most this old."""
REMEMBERED = 128
"""Events of which a page knows the round; a tab that hears one later waits for a round of its own."""
_rounds = itertools.count(1)


class Pace:
    """The rounds of one page. `round` is the last that began, with the parts `names`; numbers are never used twice."""

    def __init__(self) -> None:
        self.round = 0
        self.names: frozenset[str] = frozenset()
        self.gap = GAP_SECONDS
        self._begun_at = float("-inf")
        self._next = next(_rounds)
        self._due: set[str] = set()
        self._heard: OrderedDict[Hashable, int] = OrderedDict()

    def hear(self, event: Hashable, parts: Iterable[str]) -> int:
        """The round that shows what this event changed; it may have begun, if another tab heard the event before."""
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
        """Begin the next round, with all that is due."""
        self._begun_at, self.round, self._next = now, self._next, next(_rounds)
        self.names, self._due = frozenset(self._due), set()

    def took(self, seconds: float) -> None:
        """Note how many seconds the last round took."""
        self.gap = min(MOST_GAP_SECONDS, max(GAP_SECONDS, RESTS * seconds))


class Paces:
    """The paces of the pages that are open; each is forgotten with its last tab."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Hashable, Pace] = WeakValueDictionary()

    def of(self, page: Hashable) -> Pace:
        pace = self._known.get(page)
        if pace is None:
            self._known[page] = pace = Pace()
        return pace


def ticks(address: str) -> Callable[[float], tuple[int, float]]:
    """A page's ticks by the time of day: the number of the last one and the seconds to the next. All tabs of a page
    have them together, and other pages at other times, so that not everything is rendered at once.
    """
    offset = zlib.crc32(address.encode()) % 1000 / 1000 * TICK_SECONDS

    def at(timestamp: float) -> tuple[int, float]:
        number, gone = divmod(timestamp + offset, TICK_SECONDS)
        return int(number), TICK_SECONDS - gone

    return at
