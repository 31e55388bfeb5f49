"""Binds a session to another instance, or releases its binding. The session's next request is sent to the new instance,
regardless of the policy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.amounts import amount
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
    """Finds the effect of binding a session to another instance, or of releasing it."""

    source: str | None
    target: str | None
    context_tokens: int

    async def effect(self, known: Known) -> PlanEffect:
        return session_effect(known.use, self.source, self.target, self.context_tokens)

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("one session is too small a change to show")


def session_kind(name: PlanKind) -> Kind:
    """Return a kind of plan that binds a session to the requested instance. If no instance is requested, the session is
    released.
    """
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
    """Return the effect on the session: its context is recomputed at its new instance. A move of one session never
    counts as heavy.
    """
    if target is None:
        notes = ["The policy places its next request like that of a new session, perhaps on the same instance again."]
        return PlanEffect(cache_tokens_lost=0, notes=notes)
    notes = [
        f"Its next request goes to {target}, regardless of the policy; after that the policy may move it again.",
        "Requests in flight are served to their end where they are.",
    ]
    if source is None:
        return PlanEffect(notes=notes)
    notes.append("No TTFT is predicted: it depends on the next request.")
    there = next((use for use in pool.instances if use.id == target), None)
    busy = [f"{amount(there.in_flight, 'request', 'are')} in flight at {target}."] if there is not None and there.in_flight else []
    return PlanEffect(
        sessions_moved=1,
        cache_tokens_lost=context_tokens,
        notes=[*notes, *busy],
        warnings=[f"{target} computes about {amount(context_tokens, 'token')} of context again."] if context_tokens else [],
    )


KIND = session_kind(PlanKind.MOVE)
