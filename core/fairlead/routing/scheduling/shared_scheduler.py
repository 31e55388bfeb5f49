"""A scheduler that can also decide for other routers, or let another router decide for its own requests (see
`contracts.sharing`).
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from fairlead.reports.loads import InstanceInFlight
from fairlead.reports.moves import CacheTransfer, MoveOutcome
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.routing.contracts.faults import Fault
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.contracts.sharing import (
    Abandoned,
    Asked,
    AttemptFailed,
    Completed,
    Decider,
    FirstToken,
    Front,
    Generated,
    InstanceFailed,
    InstanceWorked,
    Prefilled,
    SentElsewhere,
    Transferred,
    UnderWay,
    Word,
)
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.queues.accounting import Stage
from fairlead.routing.scheduling.asking import Asking
from fairlead.routing.scheduling.guests import Guests
from fairlead.routing.scheduling.outcomes import Outcome
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.tables import RoutingTable
from fairlead.targets import instance_of


class SharedScheduler(PoolScheduler):
    """A `PoolScheduler` that can decide for other routers (its fronts), and can let another router (its decider)
    decide. Otherwise it behaves like a `PoolScheduler`.

    The router that decides about a request also reports the request's bindings, moves and decisions, and the work of
    instances. So a front must not report its requests in flight, because its decider's counts include them. Arrivals
    are the exception: they are always reported by the router that receives them.
    """

    def __init__(
        self,
        table: RoutingTable,
        router_id: str,
        seed: int,
        *,
        sample_rate: float = 0.05,
        settings: SchedulerSettings | None = None,
        policies: PolicyCatalogue = BUILT_IN,
    ) -> None:
        super().__init__(table, router_id, seed, sample_rate=sample_rate, settings=settings, policies=policies)
        self._asking = Asking(self._state, self._waiting, self._dispatching, self._outcomes)
        self._guests = Guests(self._state, self._circuits, self._retrying, self._outcomes)
        self._live_routers = 1

    # ── as a front ──

    def ask(self, decider: Decider, now: float) -> None:
        """Let another router decide from now on. That router is informed of the requests in flight, and decides about
        all requests that wait.
        """
        self._others.settle(now)
        self._asking.begin(decider, now)

    def ask_nobody(self, now: float) -> tuple[Outcome, ...]:
        """Decide alone from now on, because the decider is unreachable or about to change. This router then also
        decides about the requests that the decider has neither dispatched nor refused.
        """
        if self._asking.decider is None:
            return ()
        self._state.view.now = now
        self._others.settle(now)
        self._asking.end(now)
        return self._outcomes.take(tuple(self._state.queues), now)

    def hear(self, verdict: Dispatch | Refusal, now: float) -> tuple[Outcome, ...]:
        """Carry out the dispatch or refusal that the decider sent for a request, and return it as this scheduler's own
        outcome.
        """
        self._state.view.now = now
        return self._asking.hear(verdict, now)

    def submit(self, request: RoutingRequest, now: float) -> tuple[Outcome, ...]:
        """Send the request to the decider. If there is no decider, decide about the request; see `Scheduler.submit`."""
        if self._asking.decider is None:
            return super().submit(request, now)
        self._state.view.now = now
        self._asking.submit(request, now)
        if not request.warms:
            self._state.recorder.loads.arrived(request.prompt_tokens, now)
        return ()

    def prefilled(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """See `Scheduler.prefilled`."""
        self._asking.tell(Prefilled(request=request_id), now)
        return super().prefilled(request_id, now)

    def first_token(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """See `Scheduler.first_token`."""
        if self._state.is_front:
            self._asking.tell(FirstToken(request=request_id), now)
        return self._progress.first_token(request_id, now)

    def transferred(self, request_id: str, now: float, transfer: CacheTransfer | None = None) -> None:
        """See `Scheduler.transferred`."""
        self._asking.tell(Transferred(request=request_id, transfer=transfer), now)
        super().transferred(request_id, now, transfer)

    def generated(self, request_id: str, now: float, output_tokens: int) -> None:
        """See `Scheduler.generated`."""
        if self._state.is_front:
            self._asking.tell(Generated(request=request_id, output_tokens=output_tokens), now)
        super().generated(request_id, now, output_tokens)

    def complete(self, request_id: str, now: float, output_tokens: int, cached_tokens: int | None) -> tuple[Outcome, ...]:
        """See `Scheduler.complete`."""
        if self._state.is_front:
            self._asking.tell(Completed(request=request_id, output_tokens=output_tokens, cached_tokens=cached_tokens), now)
        return self._progress.complete(request_id, now, output_tokens, cached_tokens)

    def retry(self, request_id: str, now: float, failed_instance: str, *, reached: bool = True, to: str | None = None) -> Outcome:
        """See `Scheduler.retry`. A front retries at once without its decider, and then informs the decider."""
        outcome = super().retry(request_id, now, failed_instance, reached=reached, to=to)
        if isinstance(outcome, Refusal):
            self._asking.tell(Abandoned(request=request_id, outcome=MoveOutcome.REFUSED, rejection=outcome.reason), now)
        else:
            self._asking.tell(_sent_elsewhere(outcome, failed_instance, reached=reached, by_proxy=to is not None), now)
        return outcome

    def carry_on(
        self, request_id: str, now: float, left: str, *, carried_tokens: int, why: str, unlike: str | None = None
    ) -> Dispatch | None:
        """See `Scheduler.carry_on`. A front continues the answer at once without its decider, and then informs the
        decider.
        """
        outcome = super().carry_on(request_id, now, left, carried_tokens=carried_tokens, why=why, unlike=unlike)
        if outcome is not None:
            self._asking.tell(replace(_sent_elsewhere(outcome, left), carried_tokens=carried_tokens, carried_on=why, unlike=unlike), now)
        return outcome

    def attempt_failed(self, request_id: str, instance: str, failure: str, now: float) -> None:
        """See `Scheduler.attempt_failed`."""
        self._asking.tell(AttemptFailed(request=request_id, instance=instance, failure=failure), now)
        super().attempt_failed(request_id, instance, failure, now)

    def fail(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """See `Scheduler.fail`."""
        return self._abandon(request_id, MoveOutcome.FAILED, now)

    def cancel(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """See `Scheduler.cancel`."""
        return self._abandon(request_id, MoveOutcome.CANCELLED, now)

    def decline(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """See `Scheduler.decline`."""
        return self._abandon(request_id, MoveOutcome.REFUSED, now)

    def _abandon(self, request_id: str, outcome: MoveOutcome, now: float) -> tuple[Outcome, ...]:
        self._asking.forget(request_id)
        self._asking.tell(Abandoned(request=request_id, outcome=outcome), now)
        return self._progress.abandon(request_id, outcome, now, declined=outcome is MoveOutcome.REFUSED)

    def second_opinion(
        self, request_id: str, now: float, instance: str, *, counts: bool, reached: bool = True, beyond: Collection[str] = ()
    ) -> Dispatch | None:
        """See `Scheduler.second_opinion`."""
        outcome = super().second_opinion(request_id, now, instance, counts=counts, reached=reached, beyond=beyond)
        if counts:
            self._asking.tell(InstanceFailed(instance=instance, fault=Fault.REFUSED, request=request_id), now)
        if outcome is not None:
            self._asking.tell(replace(_sent_elsewhere(outcome, instance, reached=reached), refused=True), now)
        return outcome

    def instance_failed(self, instance: str, now: float, fault: Fault = Fault.UNREACHED, request_id: str | None = None) -> None:
        """See `Scheduler.instance_failed`."""
        self._asking.tell(InstanceFailed(instance=instance, fault=fault, request=request_id), now)
        super().instance_failed(instance, now, fault, request_id)

    def instance_worked(self, instance: str, now: float) -> None:
        """See `PoolScheduler.instance_worked`."""
        if self._state.is_front:
            self._asking.tell(InstanceWorked(instance=instance), now)
        if self._state.suspected or self._state.circuits:
            super().instance_worked(instance, now)

    def give_up(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """See `Scheduler.give_up`."""
        self._asking.give_up(request_id, now)
        return super().give_up(request_id, now)

    def shut_down(self, now: float) -> tuple[Outcome, ...]:
        """See `Scheduler.shut_down`. The fronts keep their requests: they decide alone, or use another decider."""
        for front in self._guests.fronts:
            self._guests.leave(front, now)
        self._asking.shut_down(now)
        return super().shut_down(now)

    def waiting(self) -> int:
        """Number of requests that are queued or held in this router, and of requests that its decider has neither
        dispatched nor refused.
        """
        return super().waiting() + len(self._asking)

    def carried(self) -> tuple[InstanceInFlight, ...]:
        """See `Scheduler.carried`."""
        others: Counter[str] = Counter()
        for request_id in self._state.guests:
            tracked = self._state.requests.get(request_id)
            if tracked is None or tracked.stage is Stage.HELD:
                continue
            others[instance_of(tracked.decodes_on)] += 1
            if tracked.stage is not Stage.DECODING and tracked.decode is not None:
                others[instance_of(tracked.instance)] += 1
        return tuple(replace(row, in_flight=row.in_flight - others[row.instance]) for row in super().carried())

    # ── as a decider ──

    def join(self, front: Front) -> None:
        """Accept another router as a front, for which this router decides."""
        self._others.settle(self._state.view.now)
        self._guests.join(front)
        self._count_routers()

    def leave(self, front: Front, now: float) -> tuple[Outcome, ...]:
        """Remove a front that left or decides alone again. Its requests are no longer counted in this router."""
        self._state.view.now = now
        self._others.settle(now)
        self._guests.leave(front, now)
        self._count_routers()
        return self._outcomes.take(tuple(self._state.queues), now)

    def know_routers(self, count: int) -> None:
        """See `Scheduler.know_routers`. Fronts are not counted as separate routers, because their requests already
        count as this router's own: the number is divided by one plus the number of fronts.
        """
        self._live_routers = count
        self._count_routers()

    def _count_routers(self) -> None:
        super().know_routers(round(self._live_routers / (1 + len(self._guests.fronts))))

    def hear_front(self, front: Front, word: Word, now: float) -> tuple[Outcome, ...]:
        """Handle a front's message. Outcomes of the fronts' requests are sent to the fronts; outcomes of this router's
        own requests are returned.
        """
        match word:
            case Asked():
                if self._guests.admit(word.request.id, front):
                    tracked = self._admit(word.request, submitted_at=word.submitted_at, now=now)
                    self._waiting.place_new(tracked, now)
                    return self._outcomes.take((), now)
            case UnderWay():
                self._guests.adopt(word, front)
            case InstanceFailed():
                super().instance_failed(word.instance, now, word.fault, word.request)
                return self._outcomes.take((), now)
            case InstanceWorked():
                super().instance_worked(word.instance, now)
            case _ if self._guests.is_of(word.request, front):
                return self._hear_of_request(word, now)
        return ()

    def _hear_of_request(
        self, word: Prefilled | FirstToken | Transferred | Generated | Completed | Abandoned | SentElsewhere | AttemptFailed, now: float
    ) -> tuple[Outcome, ...]:
        match word:
            case Prefilled():
                return super().prefilled(word.request, now)
            case FirstToken():
                return super().first_token(word.request, now)
            case Transferred():
                super().transferred(word.request, now, word.transfer)
            case Generated():
                super().generated(word.request, now, word.output_tokens)
            case SentElsewhere():
                self._guests.follow(word, now)
                return self._outcomes.take((), now)
            case Completed():
                self._guests.end(word.request)
                return super().complete(word.request, now, word.output_tokens, word.cached_tokens)
            case Abandoned():
                self._guests.end(word.request)
                tracked = self._state.requests.get(word.request)
                if tracked is not None and word.is_recorded:
                    tracked.is_elsewhere = True
                declined = word.outcome is MoveOutcome.REFUSED and word.rejection is None
                return self._progress.abandon(word.request, word.outcome, now, declined=declined, rejection=word.rejection)
            case AttemptFailed():
                super().attempt_failed(word.request, word.instance, word.failure, now)
        return ()


def _sent_elsewhere(to: Dispatch, failed: str, *, reached: bool = True, by_proxy: bool = False) -> SentElsewhere:
    return SentElsewhere(request=to.request.id, failed=failed, reached=reached, instance=to.instance, decode=to.decode, by_proxy=by_proxy)
