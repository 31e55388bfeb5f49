"""Estimates the effect of changes of one instance or session: taking an instance out of service, letting it serve
again, draining it on a person's request, and giving a session another home or none. Pure.
"""

from dataclasses import replace

from fairlead.instances import ACCEPTING, InstanceState
from fairlead.routing.contracts.catalogues import PolicyCatalogue, RingUse
from fairlead.routing.knowledge.ring_changes import expected_sessions, moved_shares
from fairlead.routing.knowledge.rings import key_shares
from fairlead_api.infra.errors import NotFound
from fairlead_api.plans.evidence import InstanceUse, PoolUse
from fairlead_client.resources.plans import PlanEffect


def cordon_effect(pool: PoolUse, instance: str, policies: PolicyCatalogue) -> PlanEffect:
    """A cordoned instance keeps its requests in flight and gets no new ones: its sessions move with their next request.

    It is not replaced, so the others carry its load. Raises NotFound.
    """
    one = find(pool, instance)
    if one.state not in ACCEPTING:
        return PlanEffect(notes=[f"{instance} is {one.state} and gets no new requests anyway."])
    left = [use for use in pool.instances if use.state in ACCEPTING and use.role is one.role and use is not one]
    go_on = "1 instance of role {} goes on" if len(left) == 1 else f"{len(left)} instances of role {{}} go on"
    alone = f"Nobody else of role {one.role} takes requests: every new request will be refused until it is uncordoned."
    anchors = pool.facts.anchors_per_instance
    before = [use.entry(anchors) for use in pool.instances]
    return PlanEffect(
        key_share_moved=key_shares(before).get(instance, 0.0),
        sessions_moved=one.bound_sessions if left else 0,
        sessions_lost=0 if left else one.bound_sessions,
        cache_tokens_lost=one.cache_tokens,
        requests_in_flight=one.in_flight,
        notes=[f"It is not replaced while it is cordoned: {go_on.format(one.role)}."] if left else [],
        warnings=[] if left else [alone],
        heavy=not left or pool.is_heavy(one.bound_sessions),
    )


def uncordon_effect(pool: PoolUse, instance: str, policies: PolicyCatalogue) -> PlanEffect:
    """The keys that the instance takes back, and the sessions that follow them. Raises NotFound."""
    one = find(pool, instance)
    anchors = pool.facts.anchors_per_instance
    before = [use.entry(anchors) for use in pool.instances]
    after = [use.entry(anchors) if use is not one else replace(use, state=InstanceState.SERVING).entry(anchors) for use in pool.instances]
    moves = moved_shares(before, after)
    follows = policies.entry(pool.facts.routing.policy).ring is RingUse.EVERY_REQUEST
    shares, bound = key_shares(before), {use.id: use.bound_sessions for use in pool.instances}
    cached = {use.id: use.cache_tokens for use in pool.instances}
    sessions = round(expected_sessions(moves, shares, bound)) if follows else 0
    return PlanEffect(
        key_share_moved=sum(moves.values()),
        sessions_moved=sessions,
        cache_tokens_lost=round(expected_sessions(moves, shares, cached)) if follows else 0,
        warnings=[f"About {sessions} of {pool.sessions} sessions follow their keys to it, and lose their cache."] if sessions else [],
        heavy=pool.is_heavy(sessions),
    )


def find(pool: PoolUse, instance: str) -> InstanceUse:
    """The instance of this name. Raises NotFound."""
    for use in pool.instances:
        if use.id == instance:
            return use
    raise NotFound("instance", instance)


def drain_effect(pool: PoolUse, instance: str, *, replaced: bool = True) -> PlanEffect:
    """The sessions that move, and the capacity that is left until the successor serves, or permanently if the instance
    is not `replaced`. Raises NotFound.
    """
    one = find(pool, instance)
    if one.state is InstanceState.DRAINING:
        return PlanEffect(notes=[f"{instance} drains already."])
    left = [use for use in pool.instances if use.state is InstanceState.SERVING and use.role is one.role and use is not one]
    number = "1 instance of role {} serves" if len(left) == 1 else f"{len(left)} instances of role {{}} serve"
    words = f"{number.format(one.role)} until its successor does; the number of instances stays."
    if not replaced:
        return _emptied(pool, one, number.format(one.role), alone=not left)
    if not left:
        words = "No other instance of its role serves, so its successor comes first and the drain begins when that serves."
    return PlanEffect(
        victims=[instance],
        sessions_moved=one.bound_sessions,
        cache_tokens_lost=one.cache_tokens,
        requests_in_flight=one.in_flight,
        notes=[words],
        heavy=pool.is_heavy(one.bound_sessions),
    )


def _emptied(pool: PoolUse, one: InstanceUse, words: str, *, alone: bool) -> PlanEffect:
    """An engine that Fairlead does not end: it drains, stays empty, and can be taken back."""
    return PlanEffect(
        sessions_moved=0 if alone else one.bound_sessions,
        sessions_lost=one.bound_sessions if alone else 0,
        cache_tokens_lost=one.cache_tokens,
        requests_in_flight=one.in_flight,
        notes=[] if alone else [f"{words} while it is drained. It goes on running, and takes requests again when the drain is taken back."],
        warnings=["No other engine serves: every new request will be refused until the drain is taken back."] if alone else [],
        heavy=alone or pool.is_heavy(one.bound_sessions),
    )


def undrain_effect(pool: PoolUse, instance: str, *, replaced: bool = True) -> PlanEffect:
    """The instance's sessions have moved and do not come back automatically. Raises NotFound."""
    one = find(pool, instance)
    if one.state is not InstanceState.DRAINING:
        return PlanEffect(notes=[f"{instance} does not drain yet and goes on as it is."])
    if not replaced:
        return PlanEffect(notes=["It takes requests again; sessions that moved stay where they are."])
    return PlanEffect(notes=["It takes requests again, unless its successor serves already; sessions that moved stay where they are."])


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
