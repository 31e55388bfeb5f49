"""Subsets: requests that only some instances of the pool may serve, because the gateway in front of the router
restricts them.
"""

from collections.abc import Collection
from dataclasses import replace

from fairlead.reports.decisions import Weighing
from fairlead.routing.choosing.candidates import FALLBACKS, less_loaded, score
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.policies import PolicyInForce
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.weighing import OUTSIDE_SUBSET
from fairlead.routing.knowledge.views import LiveView


def choose_within(request: RoutingRequest, within: Collection[str], policy: PolicyInForce, view: LiveView, now: float) -> Decision | None:
    """Return the policy's choice among the instances `within`; None if none of these instances accepts requests.

    If a policy that uses a ring or a session's home chooses an instance outside `within`, the least loaded instance of
    `within` is chosen instead.
    """
    part = view.within(within)
    if not part.candidates() or not part.decode_candidates():
        return None
    decision = policy.choose(request, part, now)
    if not request.may_go_to(decision.instance):
        return _least_loaded(request, part)
    return replace(
        decision,
        fallbacks=tuple(instance for instance in decision.fallbacks if request.may_go_to(instance)),
        alternate=decision.alternate if decision.alternate is not None and request.may_go_to(decision.alternate) else None,
        room_tokens=None,  # what it may be sent back to for want of room, its session's home, may be no member
        overloaded=(),
    )


def _least_loaded(request: RoutingRequest, view: LiveView) -> Decision:
    loads = sorted(view.candidates(), key=less_loaded)[: FALLBACKS + 1]

    def weigh() -> Weighing:
        speed = view.prefill_speed
        compared = [score(request, load, view.hit_tokens(request, load.entry.id), speed) for load in loads]
        return Weighing(rule=OUTSIDE_SUBSET, candidates=tuple(compared), considered=len(view.candidates()))

    names = [load.entry.id for load in loads]
    return Decision(instance=names[0], reason=DecisionReason.FALLBACK, fallbacks=tuple(names[1:]), weigh=weigh)
