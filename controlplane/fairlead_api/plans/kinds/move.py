"""Moves a session to another home, or takes its home away: its next request goes there, whatever the policy would
choose.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.errors import InvalidInput
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead_api.plans.changes import Asked, Change, Kind
from fairlead_api.plans.evidence import PoolUse
from fairlead_api.plans.objects import Target
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Question, Tried
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuestion:
    """What would moving a session to another home, or releasing it, do?"""

    source: str | None
    target: str | None
    context_tokens: int

    async def effect(self, known: Known) -> PlanEffect:
        return session_effect(known.use, self.source, self.target, self.context_tokens)

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("one session more or less does not show")


def session_kind(name: PlanKind) -> Kind:
    """A kind that gives a session the request's instance as its home; without one it has no home afterwards."""
    return Kind(name=name, change=_change, questions=_questions)


async def _change(asked: Asked) -> Change:
    session = asked.request.session or ""
    target = Target.of_session(asked.pool, session)
    found = await asked.cluster.read(target)
    if "instance" not in found.spec:
        raise InvalidInput("session", session, "no instance holds it; its next request is placed by the policy")
    return Change(target=target, found=found, patch={"instance": asked.request.instance})


def _questions(change: Change, _policies: PolicyCatalogue) -> Sequence[Question]:
    tokens = int(change.found.status["contextTokens"])
    return [SessionQuestion(source=change.part.get("instance"), target=change.patch["instance"], context_tokens=tokens)]


def session_effect(pool: PoolUse, source: str | None, target: str | None, context_tokens: int) -> PlanEffect:
    """The session's context is computed again at its new home. It is one of many, so the change is never heavy."""
    if target is None:
        notes = ["The policy places its next request like that of a new session, perhaps on the same instance again."]
        return PlanEffect(cache_tokens_lost=0, notes=notes)
    notes = [
        f"Its next request goes to {target}, whatever the policy would choose; from then on it moves by the policy's rules again.",
        "Requests in flight are served to their end where they are.",
    ]
    if source is None:
        return PlanEffect(notes=notes)
    notes.append("The first token there is not predicted: it depends on the request that comes next.")
    there = next((use for use in pool.instances if use.id == target), None)
    busy = [f"{there.in_flight} requests are in flight at {target}."] if there is not None and there.in_flight else []
    return PlanEffect(
        sessions_moved=1,
        cache_tokens_lost=context_tokens,
        notes=[*notes, *busy],
        warnings=[f"About {context_tokens:,} tokens of context are computed again at {target}."] if context_tokens else [],
    )


KIND = session_kind(PlanKind.MOVE)
