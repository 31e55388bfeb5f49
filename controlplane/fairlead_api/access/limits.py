"""Rate limits: bounds a caller's actions per time, and bounds how many refusals of a caller get an audit entry of their
own. Pure.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import datetime

from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.errors import TooMany

BURST = 10
"""Maximum number of refusals of one caller that get an audit entry each in quick succession."""

REFILL_SECONDS = 60.0
"""Seconds until one more refusal of a caller may get an audit entry."""

MAX_CALLERS = 1000


@dataclass(slots=True)
class _Budget:
    left: float
    at: datetime
    unwritten: int = 0


class DenialBudgets:
    """A budget of audit entries about refusals for each caller. A caller is the hashable key of a credential or an
    address. Only the MAX_CALLERS most recently refused callers are remembered.
    """

    def __init__(self) -> None:
        self._budgets: OrderedDict[object, _Budget] = OrderedDict()

    def spend(self, caller: object, now: datetime) -> int | None:
        """Count one refusal of a caller, and decide whether it gets an audit entry.

        Returns None if it gets no entry. If it gets one, returns how many of the caller's earlier refusals got no
        entry.
        """
        budget = self._budgets.pop(caller, None) or _Budget(left=float(BURST), at=now)
        self._budgets[caller] = budget
        if len(self._budgets) > MAX_CALLERS:
            self._budgets.popitem(last=False)
        budget.left = min(float(BURST), budget.left + max(0.0, (now - budget.at).total_seconds()) / REFILL_SECONDS)
        budget.at = now
        if budget.left < 1.0:
            budget.unwritten += 1
            return None
        budget.left -= 1.0
        counted, budget.unwritten = budget.unwritten, 0
        return counted


def with_count(draft: AuditDraft, counted: int) -> AuditDraft:
    """Return the audit entry with an additional field `counted`: the number of the caller's earlier refusals that got
    no entry.
    """
    return replace(draft, after={"refusals_counted_before": counted}) if counted else draft


MOST_KNOWN = 10_000
"""Maximum number of remembered allowances; the least recently used one is forgotten first. A forgotten caller starts
again with a full allowance.
"""


class Allowances:
    """Rate limits of actions: a separate allowance for each address, or for each credential."""

    def __init__(self, *, burst: int, per_second: float, code: str) -> None:
        self._burst, self._per_second, self._code = burst, per_second, code
        self._left: OrderedDict[object, tuple[float, datetime]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._left)

    def has(self, who: object, now: datetime) -> bool:
        """Return whether something is left of the allowance of `who`."""
        return self._filled(who, now) >= 1.0

    def require(self, who: object, now: datetime) -> None:
        """Raise TooMany if nothing is left of the allowance of `who`."""
        left = self._filled(who, now)
        if left < 1.0:
            seconds = max(1, math.ceil((1.0 - left) / self._per_second))
            raise TooMany(self._code, "too many attempts in a short time", seconds)

    def take(self, who: object, now: datetime) -> None:
        """Check and spend one unit of the allowance in one step, so that simultaneous calls cannot spend more than is
        left. Raises TooMany.
        """
        self.require(who, now)
        self.spend(who, now)

    def spend(self, who: object, now: datetime) -> None:
        """Spend one unit of the allowance, if any is left."""
        self._keep(who, self._filled(who, now) - 1.0, now)

    def _keep(self, who: object, left: float, now: datetime) -> None:
        self._left[who] = min(float(self._burst), max(0.0, left)), now
        self._left.move_to_end(who)
        if len(self._left) > MOST_KNOWN:
            self._left.popitem(last=False)

    def _filled(self, who: object, now: datetime) -> float:
        left, at = self._left.get(who, (float(self._burst), now))
        return min(float(self._burst), left + max(0.0, (now - at).total_seconds()) * self._per_second)
