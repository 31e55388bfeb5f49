"""Retries actions that the Kubernetes API refused, or that failed because of an error of the API itself.

Each refusal is recorded as one event, and the action is tried again after a growing pause.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Hashable

from fairlead.conditions.facts import ActionFailure, ActionFailureReason
from fairlead_operator.backoff import ActionBackoff
from fairlead_operator.cluster import ClusterError, ClusterRefused, ClusterUnavailable
from fairlead_operator.events import EventRecorder
from fairlead_operator.pool_identity import PoolIdentity

logger = logging.getLogger(__name__)

SLOW_SECONDS = 3.0
"""A refusal counts as slow if the refused call took at least this many seconds. Such a call waited for something, for
example for an admission webhook that hangs.
"""


class NotOwned(Exception):
    """An object with the needed name belongs to another owner; `str` names both."""


class Altered(Exception):
    """An object was created, but something in the cluster changed the object. `str` of this error names the missing
    part.
    """


class ActionRetries:
    """The retries of one pool. A round begins with `begin_round` and ends with `end_round`; Unix times come from
    `clock`.

    An action's key is a tuple: the action's kind, its object, and the change to that object. A corrected action has
    another key, so it is tried without a pause. After one slow refusal, the round postpones its other actions of the
    same kind to the next round. It gives each action of another kind at most `SLOW_SECONDS`.
    """

    def __init__(self, recorder: EventRecorder, clock: Callable[[], float], longest_pause: float) -> None:
        self._recorder = recorder
        self._clock = clock
        self._refusals = ActionBackoff(longest_pause)
        self._wanted: set[Hashable] = set()
        self._slow: dict[Hashable, ActionFailure] = {}
        self._basis: Hashable = None
        self.problem: ActionFailure | None = None
        """The first refusal of this round; None if no action was refused."""

    def begin_round(self, basis: Hashable) -> None:
        """Begin a round, in which no action has been tried so far. If `basis` differs from the last round's, for
        example after the spec was corrected, all pauses end.
        """
        if basis != self._basis:
            self._refusals.forget()
            self._basis = basis
        self._wanted = set()
        self._slow = {}
        self.problem = None

    def end_round(self) -> float | None:
        """End a round, and forget the refusals of actions that the round did not try.

        Returns the seconds until a refused action may be tried again; None if no action was refused.
        """
        self._refusals.keep(self._wanted)
        return self._refusals.due(self._clock())

    def problem_of(self, what: Hashable) -> ActionFailure | None:
        """Return the reason of this action's last refusal and the time of the next attempt; None if the last attempt
        succeeded.
        """
        return self._refusals.problem(what)

    async def attempt(self, identity: PoolIdentity, what: tuple[Hashable, ...], act: Callable[[], Awaitable[object]]) -> bool:
        """Do an action, unless the pause after its last refusal still lasts. Return whether the action was done.

        If the action conflicts with a write by others (409), it is repeated once, after its object was read again. A
        conflict is reported only if the next attempt conflicts too. Raises ClusterUnavailable at once if the Kubernetes
        API cannot be reached.
        """
        self._wanted.add(what)
        began, kind = self._clock(), what[:-1]
        waiting = self._refusals.waiting(what, began)
        known = self._slow.get(kind) if waiting is None else waiting.told
        if waiting is not None or known is not None:
            self.problem = self.problem or (waiting.with_next_try(known) if waiting is not None and known is not None else known)
            return False
        try:
            async with asyncio.timeout(SLOW_SECONDS if self._slow else None):
                await _repeating_conflicts(act)
        except (ClusterError, NotOwned, Altered, TimeoutError) as error:
            if isinstance(error, ClusterUnavailable) and not _answers_others(error):
                raise
            reason = ActionFailureReason.CHILD_NOT_OURS if isinstance(error, NotOwned) else ActionFailureReason.ACTION_FAILED
            words = (
                str(error)
                or f"no answer within {SLOW_SECONDS:g} s; the limit is short, because another write of this round waited too long"
            )
            asked_for = error.retry_after if isinstance(error, ClusterUnavailable) else 0.0
            problem = ActionFailure(reason=reason, message=words)
            self._failed(identity, what, problem, began, asked_for, is_conflict=_is_conflict(error))
            return False
        self._refusals.clear(what)
        return True

    def _failed(
        self,
        identity: PoolIdentity,
        what: tuple[Hashable, ...],
        problem: ActionFailure,
        began: float,
        asked_for: float,
        *,
        is_conflict: bool,
    ) -> None:
        now = self._clock()
        if now - began >= SLOW_SECONDS:
            self._slow[what[:-1]] = problem
        refusal = self._refusals.add(what, problem, now, took=max(now - began, asked_for), is_passing=is_conflict)
        self.problem = self.problem or (refusal.with_next_try(refusal.told) if refusal.told is not None else None)
        if refusal.is_news:
            logger.warning("action refused", extra={"pool": identity.name, "reason": problem.reason, "error": problem.message})
            self._recorder.record(identity, now, problem.reason, problem.message)


def fingerprint(body: object) -> str:
    """Return a short hash of a write's content, for the key of an action."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, default=str).encode()).hexdigest()[:16]


async def _repeating_conflicts(act: Callable[[], Awaitable[object]]) -> None:
    try:
        await act()
    except ClusterRefused as refused:
        if not _is_conflict(refused):
            raise
        await act()


def _is_conflict(error: Exception) -> bool:
    return isinstance(error, ClusterRefused) and error.status == 409


def _answers_others(error: ClusterUnavailable) -> bool:
    """Return whether calls for other objects may succeed after this error. They may if the error is a 429, a 5xx or a
    missing response, because an admission webhook that fails or hangs, for example, affects only this call.
    """
    return error.is_late or (error.status is not None and (error.status == 429 or error.status >= 500))
