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
"""Minimum time between two rounds of a page, and its maximum for rounds that take long because many people look."""
RESTS = 3.0
"""The time between two rounds is at least this many times the duration of the previous one, up to the maximum."""
TICK_SECONDS = 10.0
"""Maximum age of content that no event reports: ages, a stale database, the time on the page."""
REMEMBERED = 128
"""Number of events whose round a page remembers; a tab that receives an older event waits for a new round."""
_rounds = itertools.count(1)


class Pace:
    """The rounds of one page. `round` is the number of the last one that began, `names` are its parts; numbers are
    never reused.
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
        """Begin the next round, with all parts that are due."""
        self._begun_at, self.round, self._next = now, self._next, next(_rounds)
        self.names, self._due = frozenset(self._due), set()

    def took(self, seconds: float) -> None:
        """Record how many seconds the last round took."""
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
    """A page's ticks by the time of day: the number of the last one, and the seconds to the next. All tabs of a page
    tick together; different pages tick at different times, so that not everything is rendered at once.
    """
    offset = zlib.crc32(address.encode()) % 1000 / 1000 * TICK_SECONDS

    def at(timestamp: float) -> tuple[int, float]:
        number, gone = divmod(timestamp + offset, TICK_SECONDS)
        return int(number), TICK_SECONDS - gone

    return at
