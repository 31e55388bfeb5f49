"""Decides when the parts of open pages are rendered again. This happens in rounds; a round renders for all tabs that
show the same page.

Each tab receives every event separately, a moment before or after the other tabs, and must not repeat a rendering that
another tab has just caused. Therefore an event is assigned to a round of its page, regardless of which tab receives it
first.
"""

import itertools
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from weakref import WeakValueDictionary

GAP_SECONDS, MOST_GAP_SECONDS = 0.9, 1.5
"""Minimum seconds between two rounds of a page. If rounds take long because of many viewers, the minimum increases, but
at most to MOST_GAP_SECONDS.
"""
RESTS = 3.0
"""If a round took t seconds, at least RESTS times t seconds lie between this round and the next round, but never more
than MOST_GAP_SECONDS are required.
"""
TICK_SECONDS = 10.0
"""Maximum age in seconds of content that changes without an event: ages, the note about a stale database, the time on
the page.
"""
REMEMBERED = 128
"""Number of newest events whose round a page remembers. A tab that receives an older event waits for a new round."""
_rounds = itertools.count(1)


class Pace:
    """The rounds of one page. `round` is the number of the last round that began, and `names` are the parts of the page
    that this round renders. Numbers of rounds are never reused.
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
        """Return the number of the round that renders the parts that this event changed. If another tab received the
        event earlier, that round may have begun already.
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
        """The earliest time at which the next round may begin."""
        return self._begun_at + self.gap

    def begin(self, now: float) -> None:
        """Begin the next round, which renders all parts that are due."""
        self._begun_at, self.round, self._next = now, self._next, next(_rounds)
        self.names, self._due = frozenset(self._due), set()

    def took(self, seconds: float) -> None:
        """Record the seconds that the last round took."""
        self.gap = min(MOST_GAP_SECONDS, max(GAP_SECONDS, RESTS * seconds))


class Paces:
    """The paces of the open pages, by page. A page's pace is removed when its last tab is closed."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Hashable, Pace] = WeakValueDictionary()

    def of(self, page: Hashable) -> Pace:
        pace = self._known.get(page)
        if pace is None:
            self._known[page] = pace = Pace()
        return pace


def ticks(address: str) -> Callable[[float], tuple[int, float]]:
    """Return a function that computes a page's ticks: fixed times at which the page is rendered even without an event.
    Given a Unix time, the function returns the number of the last tick and the seconds until the next one. All tabs of
    a page have the same ticks. Different pages have different ticks, so that not everything is rendered at once.
    """
    offset = zlib.crc32(address.encode()) % 1000 / 1000 * TICK_SECONDS

    def at(timestamp: float) -> tuple[int, float]:
        number, gone = divmod(timestamp + offset, TICK_SECONDS)
        return int(number), TICK_SECONDS - gone

    return at
