"""Holding still: a session's request goes to its home, whatever the policy would have chosen, while migrations are
paused, and once after a person moved it there.
"""

from dataclasses import replace

from fairlead.reports.decisions import Weighing
from fairlead.routing.choosing.candidates import score
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.weighing import MOVED_BY_PERSON, STAYS_PAUSED
from fairlead.routing.scheduling.state import SchedulerState


def at_home(request: RoutingRequest, decision: Decision, home: str, state: SchedulerState, *, asked: bool) -> Decision:
    """The decision for a session's home in place of the policy's own for another instance; `asked` if a person moved it
    there, else its pool's migrations are paused.

    The policy's choice is recorded as passed over, and takes the request, without the session, when the home's queue is
    full.
    """
    others = tuple(one for one in (decision.instance, *decision.fallbacks) if one != home)
    return Decision(
        instance=home,
        reason=DecisionReason.SESSION_BOUND,
        fallbacks=others,
        weigh=lambda: _weighing(request, decision, home, state, MOVED_BY_PERSON if asked else STAYS_PAUSED),
        session=decision.session,
    )


def _weighing(request: RoutingRequest, decision: Decision, home: str, state: SchedulerState, rule: str) -> Weighing:
    """What the policy weighed, with the home first."""
    weighed, view = decision.weigh(), state.view
    listed = next((one for one in weighed.candidates if one.instance == home), None)
    if listed is None:
        hit = view.hit_tokens(request, home)
        listed = score(request, state.loads[home], hit, view.prefill_speed)
    others = tuple(one for one in weighed.candidates if one.instance != home)
    return replace(weighed, rule=rule, candidates=(listed, *others), passed_over=decision.instance)
