"""Limits how often somebody may do something. Pure.

Each has an allowance that fills up again: a burst at once, then so many a second.
"""

import math
from collections import OrderedDict
from datetime import datetime

from fairlead_api.infra.errors import TooMany

MOST_KNOWN = 10_000
"""Allowances remembered, of those who used theirs last; who is forgotten starts with a full one."""


class Allowances:
    """An allowance for each of those who share none: addresses, or credentials."""

    def __init__(self, *, burst: int, per_second: float, code: str) -> None:
        self._burst, self._per_second, self._code = burst, per_second, code
        self._left: OrderedDict[object, tuple[float, datetime]] = OrderedDict()

    def require(self, who: object, now: datetime) -> None:
        """Raises TooMany while nothing is left."""
        left = self._filled(who, now)
        if left < 1.0:
            seconds = max(1, math.ceil((1.0 - left) / self._per_second))
            raise TooMany(self._code, "too many in a short time", seconds)

    def take(self, who: object, now: datetime) -> None:
        """Asks and takes in one step, so that any number at once get no more than one by one. Raises TooMany."""
        self.require(who, now)
        self.spend(who, now)

    def give_back(self, who: object, now: datetime) -> None:
        """What was taken does not count."""
        self._keep(who, self._filled(who, now) + 1.0, now)

    def spend(self, who: object, now: datetime) -> None:
        """Takes one off, if there is one."""
        self._keep(who, self._filled(who, now) - 1.0, now)

    def _keep(self, who: object, left: float, now: datetime) -> None:
        self._left[who] = min(float(self._burst), max(0.0, left)), now
        self._left.move_to_end(who)
        if len(self._left) > MOST_KNOWN:
            self._left.popitem(last=False)

    def _filled(self, who: object, now: datetime) -> float:
        left, at = self._left.get(who, (float(self._burst), now))
        return min(float(self._burst), left + max(0.0, (now - at).total_seconds()) * self._per_second)
