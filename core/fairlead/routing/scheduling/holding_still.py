"""Holding still: a session's request is sent to the session's present instance although the policy would choose another
instance. This happens while migrations are paused, for the first request after a person moved the session, and when the
session would gain too little by moving.
"""

from dataclasses import replace

from fairlead.reports.decisions import Weighing
from fairlead.routing.choosing.candidates import score
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.weighing import GAIN, LEAST_GAIN
from fairlead.routing.scheduling.state import SchedulerState


def at_home(
    request: RoutingRequest, decision: Decision, home: str, state: SchedulerState, rule: str, ttfts: tuple[float, float] | None = None
) -> Decision:
    """Return a decision for the session's home, for use instead of the policy's decision for another instance. `rule`
    is the reason that is recorded. `ttfts` are the predicted TTFTs of staying and of moving; None if they were not
    compared.

    The record lists the policy's choice among the instances that were not taken. If the home's queue is full, the
    policy's choice gets the request, but the session does not move. If the policy compared the home, the request may
    still move to the policy's choice while it waits.
    """
    others = tuple(one for one in (decision.instance, *decision.fallbacks) if one != home)
    return Decision(
        instance=home,
        reason=DecisionReason.SESSION_BOUND,
        fallbacks=others,
        alternate=None if ttfts is None or decision.alternate is None else decision.instance,
        weigh=lambda: _weighing(request, decision, home, state, rule, ttfts),
        session=decision.session,
        overloaded=() if ttfts is None else decision.overloaded,
        ttft_seconds=None if ttfts is None else ttfts[0],
    )


def _weighing(
    request: RoutingRequest, decision: Decision, home: str, state: SchedulerState, rule: str, ttfts: tuple[float, float] | None
) -> Weighing:
    """Return the values that the policy compared, with the session's home as the first candidate."""
    weighed, view = decision.weigh(), state.view
    listed = next((one for one in weighed.candidates if one.instance == home), None)
    if listed is None:
        hit = view.hit_tokens(request, home)
        listed = score(request, state.loads[home], hit, view.prefill_speed)
    others = tuple(one for one in weighed.candidates if one.instance != home)
    limits = weighed.limits
    if ttfts is not None:
        limits = limits | {GAIN.name: ttfts[0] - ttfts[1], LEAST_GAIN.name: state.parameters.least_gain}
    return replace(weighed, rule=rule, candidates=(listed, *others), passed_over=decision.instance, limits=limits)
