"""Waiting: held requests are placed as soon as somebody accepts, misplaced ones are placed again,
and nobody waits for ever.
"""

from collections.abc import Iterable

from fairlead.routing.admission.refusals import waited_too_long
from fairlead.routing.queues.accounting import Stage, TrackedRequest
from fairlead.routing.scheduling.outcomes import Outcomes
from fairlead.routing.scheduling.placing import Placing
from fairlead.routing.scheduling.state import SchedulerState


class Waiting:
    """What time and change bring to requests that were not sent yet."""

    def __init__(self, state: SchedulerState, placing: Placing, outcomes: Outcomes) -> None:
        self._state = state
        self._placing = placing
        self._outcomes = outcomes

    def place_held(self, now: float) -> None:
        """Place held requests if somebody accepts; refuse those held for too long."""
        state = self._state
        if state.held and (state.view.candidates() or state.view.decode_candidates()):
            for tracked in tuple(state.held.values()):
                refusal = self._placing.place(tracked, now, admitted=bool(tracked.decision_id))
                if refusal is not None:
                    self._outcomes.refuse(tracked, refusal, now)
        for tracked in tuple(state.held.values()):
            waited = now - tracked.waiting_since
            if waited < state.settings.no_instances_ttl_seconds:
                break
            self._outcomes.refuse(tracked, self._outcomes.nobody(tracked.request, waited, now), now)

    def place_again(self, queued: Iterable[TrackedRequest], now: float) -> None:
        """Place queued requests anew whose instance may no longer take them."""
        for tracked in queued:
            refusal = self._placing.place_again(tracked, now)
            if refusal is not None:
                self._outcomes.refuse(tracked, refusal, now)

    def expire(self, now: float) -> None:
        """Refuse what has waited longer than the pool's limit."""
        state = self._state
        limit = state.parameters.queue_timeout_seconds
        while state.waiting:
            tracked = next(iter(state.waiting.values()))
            waited = now - tracked.submitted_at
            if waited < limit:
                return
            if tracked.stage is Stage.HELD:
                refusal = self._outcomes.nobody(tracked.request, waited, now)
            else:
                refusal = waited_too_long(tracked.request, state.table.pool, waited, state.drain_seconds(tracked.instance))
            self._outcomes.refuse(tracked, refusal, now)
