"""Limits how many refusals of one caller get an audit entry each. Pure.

Audit entries are appended one after another to a single chain, so a caller who is refused in a loop would fill the log
and delay everybody else's entries. A caller's first refusals are written as they come; later ones are counted, and the
next entry gives the count.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import datetime

from fairlead_api.infra.audit_chain import AuditDraft

BURST = 10
"""Refusals of one caller that are written one by one."""

REFILL_SECONDS = 60.0
"""After this long one more refusal may be written."""

MAX_CALLERS = 1000


@dataclass(slots=True)
class _Budget:
    left: float
    at: datetime
    unwritten: int = 0


class DenialBudgets:
    """A budget per caller (a hashable key of a credential or address), for the MAX_CALLERS refused last."""

    def __init__(self) -> None:
        self._budgets: OrderedDict[object, _Budget] = OrderedDict()

    def spend(self, caller: object, now: datetime) -> int | None:
        """Take one refusal into account.

        None: only count this refusal. A number: write it, with the number of refusals before it that were only counted.
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
    """The entry, with the number of the caller's earlier refusals that were only counted."""
    return replace(draft, after={"refusals_counted_before": counted}) if counted else draft
