"""Decides when to try again: pauses grow as long as an action or a server keeps failing.

This module reads no clock; times are arguments, in seconds.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

from fairlead.conditions.facts import ActionFailure
from fairlead_operator.times import format_second

_MOST_DOUBLINGS = 30
_LONG_SECONDS = 10.0
"""Minimum pause, in seconds, for which messages give the time of the next try."""


@dataclass(slots=True, kw_only=True)
class FailedAction:
    """An action that was refused `times` times in a row: the reason (`problem`), the time of the last refusal, and the
    time of the next attempt. `told` is the problem as shown to people, None while the refusal may be temporary;
    `is_news` says whether `told` must still be published.
    """

    times: int
    problem: ActionFailure
    told: ActionFailure | None
    is_news: bool
    decided_at: float
    again_at: float

    def with_next_try(self, problem: ActionFailure) -> ActionFailure:
        """Return the problem with the time of the next try added to its message."""
        is_long = self.again_at - self.decided_at >= _LONG_SECONDS
        when = f"at {format_second(math.ceil(self.again_at))}" if is_long else "within seconds"
        return replace(problem, message=f"{problem.message}; it is tried again {when}, and at once after a change of the pool")


@dataclass(slots=True)
class ActionBackoff:
    """The actions of one pool that the Kubernetes API refused.

    An action is paused for 1, 2, 4, … seconds, at most `longest`. Its key contains the change as well as the object, so
    that a corrected template or number counts as another action.
    """

    longest: float
    _known: dict[Hashable, FailedAction] = field(default_factory=dict)

    def waiting(self, action: Hashable, now: float) -> FailedAction | None:
        """Return the last refusal of an action while its pause lasts; None if the action may be tried now. If the clock
        was set back, the pause ends.
        """
        refusal = self._known.get(action)
        return refusal if refusal is not None and refusal.decided_at <= now < refusal.again_at else None

    def add(self, action: Hashable, problem: ActionFailure, now: float, *, took: float = 0.0, is_passing: bool = False) -> FailedAction:
        """Record a refusal of an action. `took` is the number of seconds that the refusal took, or that the server asks
        the caller to wait.

        The pause is at least as long as `took`; otherwise the pool would spend most of its time waiting for refusals.
        If `is_passing` is True, the refusal may be temporary, so it is reported only if the action is refused again.
        """
        before = self._known.get(action)
        times = before.times + 1 if before is not None else 1
        pause = min(self.longest, max(took, 2.0 ** min(times - 1, _MOST_DOUBLINGS)))
        told = None if is_passing and times == 1 else problem
        is_news = told is not None and (before is None or before.told != told)
        refusal = FailedAction(times=times, problem=problem, told=told, is_news=is_news, decided_at=now, again_at=now + pause)
        self._known[action] = refusal
        return refusal

    def problem(self, action: Hashable) -> ActionFailure | None:
        """Return the reason of this action's last refusal and the time of the next attempt; None if the last attempt
        succeeded.
        """
        refusal = self._known.get(action)
        return refusal.with_next_try(refusal.problem) if refusal is not None else None

    def clear(self, action: Hashable) -> None:
        """Forget the refusal of an action that succeeded."""
        self._known.pop(action, None)

    def forget(self) -> None:
        """Forget every refusal, for example after a change of the desired state."""
        self._known.clear()

    def keep(self, wanted: set[Hashable]) -> None:
        """Keep only the refusals of these actions."""
        for action in self._known.keys() - wanted:
            del self._known[action]

    def due(self, now: float) -> float | None:
        """Return the seconds until the first of the refused actions may be tried again; None if no action is refused
        now.
        """
        return min((max(0.0, refusal.again_at - now) for refusal in self._known.values()), default=None)


class ServerBackoff:
    """Decides when a server that does not respond may be called again, by any caller.

    The pause is 1, 2, 4, … seconds with jitter, or the time that the server requests.

    `monotonic` counts seconds and never goes back; `chance` gives numbers from 0 to 1.
    """

    def __init__(self, longest: float, monotonic: Callable[[], float], chance: Callable[[], float]) -> None:
        self._longest = longest
        self._monotonic = monotonic
        self._chance = chance
        self._failures = 0
        self._since = 0.0
        self._until = 0.0
        self.problem = ""

    def left(self) -> float:
        """Return the seconds until the server may be called again; 0 if it may be called now."""
        return max(0.0, self._until - self._monotonic())

    def now(self) -> float:
        """Return the present time in seconds. A caller takes it before a call, and passes it to `failed` if the call
        fails.
        """
        return self._monotonic()

    def answered(self) -> None:
        """Record that the server responded, and so reset the count of failures."""
        self._failures = 0

    def failed(self, asked_at: float, problem: str, retry_after: float | None) -> None:
        """Record that the server did not respond to a call begun at `asked_at`. Calls that were in flight when the
        pause began count as the same failure.
        """
        self.problem = problem
        if asked_at >= self._since:
            self._failures += 1
            self._since = self._monotonic()
            pause = min(self._longest, 2.0 ** min(self._failures - 1, _MOST_DOUBLINGS))
            self._until = self._since + pause * (0.75 + 0.5 * self._chance())
        if retry_after is not None:
            self._until = max(self._until, self._monotonic() + min(self._longest, retry_after))
