"""Waiting: held requests are placed as soon as an instance accepts requests, and misplaced requests are placed again.
Every wait has a limit.
"""

from collections.abc import Callable, Iterable
from functools import partial

from fairlead.routing.admission.refusals import scaled_to_zero, unplaceable, waited_too_long
from fairlead.routing.contracts.schedulers import Refusal
from fairlead.routing.queues.accounting import Stage, TrackedRequest
from fairlead.routing.scheduling.identifying import continues_task, identify
from fairlead.routing.scheduling.outcomes import Outcomes
from fairlead.routing.scheduling.placing import Placing
from fairlead.routing.scheduling.state import SchedulerState
from fairlead.tables import Outlook


class Waiting:
    """Handles requests that were not sent yet when time passes or the pool changes."""

    def __init__(self, state: SchedulerState, placing: Placing, outcomes: Outcomes) -> None:
        self._state = state
        self._placing = placing
        self._outcomes = outcomes

    def place_new(self, tracked: TrackedRequest, now: float) -> None:
        """Place, hold or refuse a request about which no router has decided yet."""
        if tracked.request.session is not None or tracked.request.beginning:
            identify(self._state, tracked, now)
        if self._state.sends_unfinished_first:
            tracked.continues = continues_task(self._state, tracked.request)
        self._placed(tracked, now, self._place_unless_unheld)

    def _place_unless_unheld(self, tracked: TrackedRequest, now: float) -> Refusal | None:
        return self._outcomes.unheld(tracked.request, now) or self._placing.place(tracked, now)

    def place_held(self, now: float) -> None:
        """Place held requests by priority and age if some instance accepts requests. Refuse the requests held for too
        long. If the pool is scaled to zero, refuse all held requests.
        """
        state = self._state
        if not state.held:
            return
        if state.view.candidates() or state.view.decode_candidates():
            for tracked in state.held.by_priority(state.classes):
                self._placed(tracked, now, partial(self._placing.place, admitted=bool(tracked.decision_id)))
        elif state.table.outlook is Outlook.CLOSED:
            for tracked in state.held:
                self._outcomes.refuse(tracked, scaled_to_zero(tracked.request, state.table, now), now)
        for tracked in state.held.overdue(state.table, now):
            waited = now - tracked.waiting_since
            self._outcomes.refuse(tracked, self._outcomes.nobody(tracked.request, waited, now), now)

    def place_again(self, queued: Iterable[TrackedRequest], now: float) -> None:
        """Place queued requests again if their instance may no longer take them."""
        for tracked in queued:
            self._placed(tracked, now, self._placing.place_again)

    def _placed(self, tracked: TrackedRequest, now: float, place: Callable[[TrackedRequest, float], Refusal | None]) -> None:
        """Place a request with `place`. If the policy fails on the request, the request is refused, so that it does not
        delay other requests.
        """
        try:
            refusal = place(tracked, now)
        except Exception as error:  # noqa: BLE001  # kept for the next tick, which raises it
            self._state.failures.keep(error, tracked.request.id)
            refusal = unplaceable(tracked.request, self._state.table)
        if refusal is not None:
            self._outcomes.refuse(tracked, refusal, now)

    def expire(self, now: float) -> None:
        """Refuse requests that have waited in queues for longer than the pool's limit. Time for which a request was
        held does not count, because it has a separate limit.
        """
        state = self._state
        limit = state.parameters.queue_timeout_seconds
        if len(state.held) == len(state.waiting):
            return
        expired: list[TrackedRequest] = []
        for tracked in state.waiting.values():
            if now - tracked.submitted_at < limit:
                break
            if tracked.stage is Stage.QUEUED and now - tracked.submitted_at - tracked.held_seconds >= limit:
                expired.append(tracked)
        for tracked in expired:
            self._refuse_queued(tracked, now)

    def give_up(self, tracked: TrackedRequest, now: float) -> None:
        """Refuse a request that was not sent yet, even if it has not reached its waiting limit."""
        if tracked.stage is Stage.QUEUED:
            self._refuse_queued(tracked, now, anyway=True)
        elif tracked.stage is Stage.HELD:
            self._outcomes.refuse(tracked, self._outcomes.nobody(tracked.request, now - tracked.submitted_at, now), now)

    def _refuse_queued(self, tracked: TrackedRequest, now: float, *, anyway: bool = False) -> None:
        state = self._state
        queued = now - tracked.submitted_at - tracked.held_seconds
        refusal = waited_too_long(tracked.request, state.table.pool, queued, state.drain_seconds(tracked.instance))
        self._outcomes.refuse(tracked, refusal, now, anyway=anyway)
