"""Trying: an idle instance takes requests that would be refused because of estimates.

A refused request gives no measurement. So a wrong estimate that refuses every request would never be corrected, and an
idle pool would stay closed permanently. And while some instance is idle, a refusal saves nothing. So this module checks
every refusal by a gate, queue or limit, and drops the refusal if an idle instance of the pool may serve the request. If
prompts and answers are computed on different instances, the prefill instance must be idle, and the decode instance must
be idle too or have room according to the gate.
"""

from math import inf

from fairlead.instances import Role
from fairlead.reports.decisions import Weighing
from fairlead.routing.choosing.candidates import FALLBACKS, score
from fairlead.routing.choosing.decoding import select_decoding
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Refusal
from fairlead.routing.contracts.weighing import IDLE_INSTANCE
from fairlead.routing.knowledge.views import LiveView
from fairlead.routing.queues.accounting import Stage, TrackedRequest
from fairlead.routing.scheduling.placing import Placing
from fairlead.routing.scheduling.prefill_decode import computing_all, decode_only
from fairlead.routing.scheduling.state import SchedulerState


class Trying:
    """Queues requests that are about to be refused on idle instances."""

    def __init__(self, state: SchedulerState, placing: Placing) -> None:
        self._state = state
        self._placing = placing

    def takes(self, tracked: TrackedRequest, refusal: Refusal, now: float) -> bool:
        """Queue a request that is about to be refused on an idle instance, if there is one that may serve it. Return
        whether the request was queued.
        """
        if not refusal.reason.facts.by_estimate or tracked.stage not in (Stage.HELD, Stage.QUEUED) or self._state.is_front:
            return False
        decision = self._decision(tracked.request, now)
        if decision is None:
            return False
        self._placing.place_at(tracked, decision, now)
        return True

    def _decision(self, request: RoutingRequest, now: float) -> Decision | None:
        view = self._state.view if request.within is None else self._state.view.within(request.within)
        whole = computing_all(request, view)
        if whole:
            idle = [load for load in whole if load.is_idle]
            return decode_only(request, idle, view) if idle else None
        idle = [load for load in view.candidates() if load.is_idle and self._decodes(request, load, view, now)]
        return _least_to_compute(request, idle, view) if idle else None

    def _decodes(self, request: RoutingRequest, load: InstanceLoad, view: LiveView, now: float) -> bool:
        """Return whether the answer can be decoded: on the instance that computes the prompt, or on an instance that is
        idle or has room.
        """
        if load.entry.role is not Role.PREFILL:
            return True
        state = self._state
        choice = select_decoding(request, view, load.entry)
        if choice is None:
            return False
        if state.loads[choice.instance].is_idle:
            return True
        ttft = view.predicted_ttft_seconds(request, load.entry.id)
        return choice.tpot_seconds < inf and state.gate.decoding(request, ttft, view, now, state.share(request), pool=state.view) is None


def _least_to_compute(request: RoutingRequest, idle: list[InstanceLoad], view: LiveView) -> Decision:
    hits = {load.entry.id: view.hit_tokens(request, load.entry.id) for load in idle}
    loads = sorted(idle, key=lambda load: (-hits[load.entry.id], load.entry.id))[: FALLBACKS + 1]

    def weigh() -> Weighing:
        speed = view.prefill_speed
        compared = tuple(score(request, load, hits[load.entry.id], speed) for load in loads)
        return Weighing(rule=IDLE_INSTANCE, candidates=compared, considered=len(idle))

    names = [load.entry.id for load in loads]
    return Decision(instance=names[0], reason=DecisionReason.FALLBACK, fallbacks=tuple(names[1:]), weigh=weigh)
