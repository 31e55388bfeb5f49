"""Changes how a pool treats sessions: how sessions are recognized, how long they stay bound to their instances, and how
much of its cache a session keeps when its instance leaves.
"""

from fairlead.amounts import amount
from fairlead.durations import format_duration
from fairlead.pools import TableFacts
from fairlead_api.plans.changes import SpecQuestion, section_kind
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Tried
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect


class SessionsQuestion(SpecQuestion):
    """Finds the effect of changed rules for sessions."""

    async def effect(self, known: Known) -> PlanEffect:
        return sessions_effect(known.use.sessions, known.use.facts, self.after.facts())

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("recorded requests have no session header, and answers are not recorded")


def sessions_effect(bound: int, before: TableFacts, after: TableFacts) -> PlanEffect:
    """Return the effect of changed rules for sessions: the time for which sessions stay bound to their instances, and
    warnings about sessions that lose their binding or are no longer recognized by their header. `bound` is the number
    of bound sessions.
    """
    old, new = before.session, after.session
    notes, warnings = [f"A session keeps its home for {format_duration(new.ttl_seconds)} after its last request."], []
    if new.ttl_seconds < old.ttl_seconds:
        warnings.append(
            f"Of {amount(bound, 'session')}, those without a request for longer than that are unbound; the policy places their next request."
        )
    if new.header != old.header:
        warnings.append(
            f"Requests that name their session in {old.header} are recognised by their prompts only, until clients send {new.header}."
        )
    return PlanEffect(notes=notes, warnings=warnings)


KIND = section_kind(PlanKind.SESSIONS, lambda after: SessionsQuestion(after=after))
