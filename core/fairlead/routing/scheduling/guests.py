"""Guests: requests of other routers for which this router decides (see `contracts.sharing`).

Guests are counted, queued and recorded like this router's own requests. The only difference: the dispatch or refusal is
sent to the router that received the request, its front.
"""

from collections.abc import Iterable

from fairlead.instances import Role
from fairlead.routing.contracts.sharing import Front, SentElsewhere, UnderWay
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.scheduling.circuits import Circuits
from fairlead.routing.scheduling.outcomes import Outcomes
from fairlead.routing.scheduling.retrying import Retrying
from fairlead.routing.scheduling.state import SchedulerState
from fairlead.routing.scheduling.table_changes import count_unlisted


class Guests:
    """The requests of other routers for which this router decides, each with the router that sent it."""

    def __init__(self, state: SchedulerState, circuits: Circuits, retrying: Retrying, outcomes: Outcomes) -> None:
        self._state = state
        self._circuits = circuits
        self._retrying = retrying
        self._outcomes = outcomes
        self._fronts: list[Front] = []

    @property
    def fronts(self) -> tuple[Front, ...]:
        """The routers that let this router decide."""
        return tuple(self._fronts)

    def join(self, front: Front) -> None:
        """Accept another router as a front, for which this router decides."""
        self._fronts.append(front)

    def leave(self, front: Front, now: float) -> None:
        """Remove a front for which this router no longer decides. From now on, the front decides about its own requests
        and reports their ends.
        """
        state = self._state
        if front not in self._fronts:
            return
        self._fronts.remove(front)
        for request_id in [known for known, whose in state.guests.items() if whose is front]:
            del state.guests[request_id]
            self._outcomes.withdraw(request_id)
            tracked = state.requests.get(request_id)
            if tracked is not None:
                self._forget(tracked, now)

    def admit(self, request_id: str, front: Front) -> bool:
        """Accept a front's request. Return False if the front has left, or if the id is already in flight."""
        if front not in self._fronts or request_id in self._state.requests:
            return False
        self._state.guests[request_id] = front
        return True

    def is_of(self, request_id: str, front: Front) -> bool:
        """Return whether this router knows the request and decides about it for this front."""
        return self._state.guests.get(request_id) is front

    def end(self, request_id: str) -> None:
        """Forget a request that has ended."""
        self._state.guests.pop(request_id, None)

    def adopt(self, word: UnderWay, front: Front) -> None:
        """Count a request that a front sent to an instance before this router decided for it, even if the instance is
        not in this router's table.
        """
        state = self._state
        if not self.admit(word.request.id, front):
            return
        count_unlisted(state, word.instance, role=Role.BOTH if word.decode is None else Role.PREFILL)
        if word.decode is not None:
            count_unlisted(state, word.decode, role=Role.DECODE)
        accounting = state.accounting
        tracked = TrackedRequest(request=word.request, submitted_at=word.submitted_at, is_elsewhere=True)
        accounting.admit(tracked)
        accounting.enqueue(tracked, word.instance, word.hit_tokens, word.dispatched_at, word.decode)
        accounting.dispatch(tracked, word.hit_tokens, word.dispatched_at)
        tracked.tried, tracked.by_proxy = (word.instance,), word.by_proxy
        if word.is_prefilled:
            before = state.loads[word.instance].last_first_token_at
            accounting.prefilled(tracked, word.dispatched_at)
            state.loads[word.instance].last_first_token_at = before
        tracked.generated_tokens = word.generated_tokens

    def follow(self, word: SentElsewhere, now: float) -> None:
        """Record that a front has sent a request to another instance without a decision by this router, after an
        instance failed the request.
        """
        known = _known(self._state, (word.instance, word.decode))
        if known and word.refused:
            self._retrying.second_opinion(word.request, now, word.failed, reached=word.reached, to=word.instance, decode=word.decode)
        elif known and word.carried_on:
            self._retrying.carry_on(
                word.request,
                now,
                word.failed,
                carried_tokens=word.carried_tokens,
                why=word.carried_on,
                unlike=word.unlike,
                to=word.instance,
                decode=word.decode,
            )
        elif known:
            self._retrying.retry(
                word.request, now, word.failed, reached=word.reached, to=word.instance, decode=word.decode, by_proxy=word.by_proxy
            )
        else:
            self._forget(self._state.requests[word.request], now)
            self.end(word.request)

    def _forget(self, tracked: TrackedRequest, now: float) -> None:
        """Forget a request whose end its front will report. Failures of this request no longer count against instances
        in this router.
        """
        self._circuits.forget(tracked)
        self._outcomes.let_go(tracked, now)


def _known(state: SchedulerState, instances: Iterable[str | None]) -> bool:
    return all(instance is None or instance in state.loads for instance in instances)
