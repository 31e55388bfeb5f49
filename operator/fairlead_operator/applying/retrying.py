"""Retries actions that the Kubernetes API refused, or that it answered with an error of its own.

Each refusal is recorded as one event, and the action is tried again after a growing pause.
"""

import logging
from collections.abc import Awaitable, Callable, Hashable

from fairlead.conditions.facts import ActionFailure, ActionFailureReason
from fairlead_operator.backoff import ActionBackoff
from fairlead_operator.cluster import ClusterError, ClusterUnavailable
from fairlead_operator.events import EventRecorder
from fairlead_operator.manifests import PoolIdentity

logger = logging.getLogger(__name__)


class NotOwned(Exception):
    """An object with the name we need belongs to another owner; `str` names both."""


class ActionRetries:
    """One pool's retries. A round begins with `begin_round` and ends with `end_round`; Unix times come from `clock`."""

    def __init__(self, recorder: EventRecorder, clock: Callable[[], float], longest_pause: float) -> None:
        self._recorder = recorder
        self._clock = clock
        self._refusals = ActionBackoff(longest_pause)
        self._wanted: set[Hashable] = set()
        self.problem: ActionFailure | None = None
        """The first refusal of this round."""

    def begin_round(self) -> None:
        """Begin a round: nothing was tried yet."""
        self._wanted = set()
        self.problem = None

    def end_round(self) -> float | None:
        """End a round: forget the actions that it did not try.

        Returns the seconds until a refused action may be tried again, None when none was refused.
        """
        self._refusals.keep(self._wanted)
        return self._refusals.due(self._clock())

    def problem_of(self, what: Hashable) -> ActionFailure | None:
        """Why this action was refused last; None when it was not."""
        return self._refusals.problem(what)

    async def attempt(self, identity: PoolIdentity, what: Hashable, act: Callable[[], Awaitable[object]]) -> bool:
        """Do an action, unless the pause after its last refusal still lasts.

        Returns whether it was done. Raises ClusterUnavailable at once when the Kubernetes API gives no answer at all.
        """
        self._wanted.add(what)
        now = self._clock()
        waiting = self._refusals.waiting(what, now)
        if waiting is not None:
            self.problem = self.problem or waiting.problem
            return False
        try:
            await act()
        except (ClusterError, NotOwned) as error:
            if isinstance(error, ClusterUnavailable) and not _answers_others(error):
                raise
            reason = ActionFailureReason.CHILD_NOT_OURS if isinstance(error, NotOwned) else ActionFailureReason.ACTION_FAILED
            problem = ActionFailure(reason=reason, message=str(error))
            self.problem = self.problem or problem
            if self._refusals.add(what, problem, now):
                logger.warning("action refused", extra={"pool": identity.name, "reason": reason, "error": str(error)})
                self._recorder.record(identity, now, reason, problem.message)
            return False
        self._refusals.clear(what)
        return True


def _answers_others(error: ClusterUnavailable) -> bool:
    """Whether other calls may succeed: 429 and 5xx may be about this one, as when an admission webhook fails, whose
    error the server answers as a 500 of its own.
    """
    return error.status is not None and (error.status == 429 or error.status >= 500)
