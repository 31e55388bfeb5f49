"""Identifying: determines the session to which a request belongs, from its session names and from other requests that
use these names.

The first name that belongs to a single session is used. The hash of the conversation's beginning is tried after the
names that the client gives. If several conversations share this hash too, the request belongs to no session.
"""

from dataclasses import replace

from fairlead.reports.bindings import BindingReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.knowledge.shared_names import Hold
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.scheduling.state import SchedulerState
from fairlead.session_identities import session_identity


def identify(state: SchedulerState, tracked: TrackedRequest, now: float) -> None:
    """Set the request's session, and mark the request's session names as in use until the request ends. A name that
    several conversations share loses its binding to an instance.
    """
    request = tracked.request
    names = _names(request, state)
    if not names or tracked.holds:
        return
    holds: list[Hold] = []
    chosen: str | None = None
    for name in names:
        was_shared = state.names.is_shared(name, now)
        holds.append(state.names.hold(name, request.beginning, request.blocks, now))
        if not state.names.is_shared(name, now):
            chosen = name
            break
        if not was_shared and state.policy.keeps_homes:
            _report(state, name, now)
    tracked.holds = tuple(holds)
    if chosen is not None and request.owner and state.policy.keeps_homes:
        _inherit(state, chosen, request.owner, now)
    if chosen != names[0]:
        tracked.request = replace(request, session=chosen, named=request.named or request.session)


def continues_task(state: SchedulerState, request: RoutingRequest) -> bool:
    """Return whether the request continues a task: a turn was served in the request's own session, or in the session
    that its client names as the parent. A task begins only with a served turn.
    """
    parent = None if request.lineage is None else request.lineage.parent
    return any(name is not None and state.bindings.is_under_way(name) for name in (request.session, parent))


def _names(request: RoutingRequest, state: SchedulerState) -> tuple[str, ...]:
    """Return the possible names of the request's session, in the order in which they are tried. There are three kinds
    of names: the client's names, the hash of the conversation's beginning, and, for some policies, a name made from the
    first blocks of the prompt.

    - client's names and hash are known: the client's names, then the hash
    - only client's names are known: the client's names, then the name from the first blocks
    - only the hash is known: the name from the first blocks, then the hash; none if the policy makes no such name
    - neither is known: none
    """
    binds = state.policy.binds_beginnings
    given = () if request.session is None else (request.session, *request.further_names)
    if request.beginning:
        own = session_identity(f"conversation:{request.beginning:016x}", request.owner)
        if given:
            return (*given, own)
        return () if binds is None else (binds.prefix_session(request), own)
    return (*given, binds.prefix_session(request)) if given and binds is not None else given


def _inherit(state: SchedulerState, session: str, owner: str, now: float) -> None:
    """Bind a tenant's new session to the home that earlier versions of the router stored. They used only the session's
    name as the key, without the tenant.
    """
    old = state.bindings.before_tenants(session)
    if old is not None and old.instance is not None:
        change = state.recorder.new_change_id()
        made = state.bindings.bind(session, old.instance, BindingReason.COLD, now, old.context_tokens, change, owner)
        if not state.bindings.is_held_back(session):
            state.recorder.bound(made)


def _report(state: SchedulerState, name: str, now: float) -> None:
    """Drop the binding of a name that several conversations turned out to share, and report the end of the binding."""
    change = state.bindings.give_up(name, now)
    if change is not None:
        state.recorder.bound(change)
