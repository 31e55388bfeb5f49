"""The effect of giving one session another home, and of taking its home away. Pure."""

from fairlead_api.plans.evidence import PoolUse
from fairlead_client.resources.plans import PlanEffect


def session_effect(pool: PoolUse, source: str | None, target: str | None, context_tokens: int) -> PlanEffect:
    """The session's context is computed again at its new home. It is one of many, so the change is never heavy."""
    if target is None:
        notes = ["The policy places its next request as that of a new session, also where it was if that suits best."]
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
