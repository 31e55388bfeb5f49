"""Asking: another router, the decider, chooses the instances for this router's requests (see `contracts.sharing`).

This router still counts the requests that it has sent. So it can decide alone as soon as no other router decides for
it.
"""

from fairlead.instances import Role
from fairlead.reports.decisions import RequestOutcome
from fairlead.reports.moves import MoveOutcome
from fairlead.routing.admission.refusals import shutting_down, waited_too_long
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.contracts.sharing import Abandoned, Asked, Decider, UnderWay, Word
from fairlead.routing.queues.accounting import Stage, TrackedRequest
from fairlead.routing.scheduling.dispatching import Dispatching
from fairlead.routing.scheduling.kept_decisions import End
from fairlead.routing.scheduling.outcomes import Outcome, Outcomes
from fairlead.routing.scheduling.state import SchedulerState
from fairlead.routing.scheduling.table_changes import count_unlisted
from fairlead.routing.scheduling.waiting import Waiting


class Asking:
    """The part of a scheduler that sends queries to the decider, another router. `decider` is None while this router
    decides alone.
    """

    def __init__(self, state: SchedulerState, waiting: Waiting, dispatching: Dispatching, outcomes: Outcomes) -> None:
        self._state = state
        self._waiting = waiting
        self._dispatching = dispatching
        self._outcomes = outcomes
        self._asked: dict[str, TrackedRequest] = {}
        """Requests that the decider has neither dispatched nor refused yet, in the order in which they were sent to the
        decider.
        """
        self.decider: Decider | None = None

    def __len__(self) -> int:
        return len(self._asked)

    def begin(self, decider: Decider, now: float) -> None:
        """Let `decider` decide from now on. It also decides about the requests that wait in this router."""
        state = self._state
        self.decider = decider
        state.is_front = True
        state.recorder.pause()
        own = [tracked for name, tracked in state.requests.items() if name not in state.guests]
        self._asked.clear()
        for tracked in own:
            if tracked.stage in (Stage.PREFILLING, Stage.DECODING):
                decider.tell(_under_way(tracked), now)
        waiting = [tracked for tracked in own if tracked.stage in (Stage.HELD, Stage.QUEUED)]
        for tracked in waiting:
            self._leave(tracked, now)
            self._ask(tracked, now)

    def end(self, now: float) -> None:
        """Decide alone from now on. This router then also decides about the requests that the decider has neither
        dispatched nor refused.
        """
        state = self._state
        self.decider = None
        state.is_front = False
        state.recorder.resume()
        asked, self._asked = self._asked, {}
        for tracked in asked.values():
            tracked.is_elsewhere = False
            self._waiting.place_new(tracked, now)

    def tell(self, word: Word, now: float) -> None:
        """Send a message to the decider; do nothing without a decider."""
        if self.decider is not None:
            self.decider.tell(word, now)

    def submit(self, request: RoutingRequest, now: float) -> None:
        """Ask the decider about a new request. Raises ValueError when a request of this id is already in flight."""
        tracked = TrackedRequest(request, now)
        self._state.accounting.admit(tracked)
        self._ask(tracked, now)

    def hear(self, verdict: Dispatch | Refusal, now: float) -> tuple[Outcome, ...]:
        """Carry out the decider's dispatch or refusal of a request. The result is empty if the request has ended, or if
        this router has decided about it in the meantime.
        """
        request_id = verdict.request.id
        tracked = self._asked.pop(request_id, None) or self._state.requests.get(request_id)
        if tracked is None or self.decider is None:
            return ()
        if isinstance(verdict, Refusal):
            tracked.is_elsewhere = True
            self._outcomes.end(tracked, MoveOutcome.REFUSED, now, End(RequestOutcome.REFUSED, verdict.reason))
            return (verdict,)
        if tracked.stage is not Stage.HELD:
            return ()
        divided = verdict.decode is not None
        count_unlisted(self._state, verdict.instance, verdict.address, Role.PREFILL if divided else Role.BOTH)
        if verdict.decode is not None:
            count_unlisted(self._state, verdict.decode, verdict.decode_address or "", Role.DECODE)
        return (self._dispatching.follow(tracked, verdict, now),)

    def forget(self, request_id: str) -> None:
        """Forget a request that has ended at this router."""
        self._asked.pop(request_id, None)

    def give_up(self, request_id: str, now: float) -> None:
        """Refuse a request that the decider has neither dispatched nor refused, because the caller no longer lets it
        wait.
        """
        tracked = self._asked.pop(request_id, None)
        if tracked is not None:
            waited = now - tracked.submitted_at
            refusal = waited_too_long(tracked.request, self._state.table.pool, waited, 0.0)
            self._refuse(tracked, refusal, now)

    def shut_down(self, now: float) -> None:
        """Refuse all requests that the decider has neither dispatched nor refused, because this router stops."""
        for tracked in tuple(self._asked.values()):
            self._refuse(tracked, shutting_down(tracked.request, self._state.table.pool), now)
        self._asked.clear()

    def _refuse(self, tracked: TrackedRequest, refusal: Refusal, now: float) -> None:
        """Refuse a request about which no router has decided. This router records the refusal; the decider does not."""
        tracked.is_elsewhere = False
        self._outcomes.refuse(tracked, refusal, now, anyway=True)
        word = Abandoned(request=tracked.request.id, outcome=MoveOutcome.REFUSED, rejection=refusal.reason, is_recorded=True)
        self.tell(word, now)

    def _ask(self, tracked: TrackedRequest, now: float) -> None:
        tracked.is_elsewhere = True
        self._asked[tracked.request.id] = tracked
        self.tell(Asked(request=tracked.request, submitted_at=tracked.submitted_at), now)

    def _leave(self, tracked: TrackedRequest, now: float) -> None:
        """Remove a request from the queue in which it waits in this router."""
        state = self._state
        state.waiting.pop(tracked.request.id, None)
        state.held.remove(tracked, now)
        if tracked.stage is Stage.QUEUED:
            state.leave_queue(tracked)
        state.recorder.decisions.forget(tracked.request.id)
        tracked.decision_id = ""
        tracked.session = tracked.transfer_from = tracked.move = tracked.learn = None


def _under_way(tracked: TrackedRequest) -> UnderWay:
    assert tracked.dispatched_at is not None
    return UnderWay(
        request=tracked.request,
        submitted_at=tracked.submitted_at,
        instance=tracked.instance,
        decode=tracked.decode,
        hit_tokens=tracked.hit_tokens,
        dispatched_at=tracked.dispatched_at,
        is_prefilled=tracked.stage is Stage.DECODING,
        generated_tokens=tracked.generated_tokens,
        by_proxy=tracked.by_proxy,
    )
