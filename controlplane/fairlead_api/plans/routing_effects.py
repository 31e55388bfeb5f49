"""Estimates the effect of another policy, of other anchors or weights on the ring, and of paused migrations. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from fairlead.errors import InvalidInput
from fairlead.instances import ACCEPTING, Role
from fairlead.pools import TableFacts
from fairlead.routing.contracts.catalogues import PolicyCatalogue, PolicyEntry, RingUse
from fairlead.routing.knowledge.ring_changes import expected_sessions, moved_shares
from fairlead.routing.knowledge.rings import key_shares
from fairlead.tables import MIGRATIONS_PAUSED, InstanceEntry
from fairlead_api.plans.cordon_effects import find
from fairlead_api.plans.evidence import PoolUse
from fairlead_client.resources.plans import PlanEffect


def policy_effect(pool: PoolUse, after: TableFacts, policies: PolicyCatalogue) -> PlanEffect:
    """The effect of another policy or other parameters; routers take it over with the next table, without a restart.

    Where the new policy places every request by the ring, or keeps no session at its home, bound sessions are taken to
    move: whether a session's key happens to lie at its home is not recorded.
    """
    before, bound = pool.facts.routing.policy, pool.sessions
    wanted = policies.entry(after.routing.policy)
    if before == wanted.name or not bound:
        return PlanEffect()
    if policies.keeps_homes(after.routing) and wanted.ring is not RingUse.EVERY_REQUEST:
        return PlanEffect(notes=[f"{bound} sessions keep their homes; {wanted.name} decides from their next request on."])
    how = "places every request by the ring" if wanted.ring is RingUse.EVERY_REQUEST else "keeps no session at its home"
    return PlanEffect(
        sessions_moved=bound,
        cache_tokens_lost=sum(use.cache_tokens for use in pool.instances),
        warnings=[f"{wanted.name} {how}: up to {bound} sessions move with their next request, and lose their cache where they were."],
        heavy=pool.is_heavy(bound),
    )


def ring_effect(pool: PoolUse, after: TableFacts, policies: PolicyCatalogue) -> PlanEffect:
    """The effect of other anchors: the keys that change owner, and the sessions that follow them."""
    new = [use.entry(after.anchors_per_instance) for use in pool.instances]
    return _rearranged(pool, new, policies.entry(after.routing.policy))


def weight_effect(pool: PoolUse, instance: str, before: float, after: float, policies: PolicyCatalogue, *, stays: bool) -> PlanEffect:
    """The effect of another weight of one instance on the ring; one that is still warming keeps its part of the whole.

    `stays`: the weight is written where it outlives the instance. Raises NotFound, and InvalidInput for an instance
    that never has keys.
    """
    one = find(pool, instance)
    if one.role is Role.DECODE:
        raise InvalidInput("instance", instance, "name an instance that computes prompts: a decode instance has no keys")
    anchors = pool.facts.anchors_per_instance
    new = [
        use.entry(anchors) if use is not one else replace(use, weight=use.weight * after / before).entry(anchors) for use in pool.instances
    ]
    notes = (
        [] if stays else ["The weight goes with the pod: one that takes its place has the weight of the pool's template, 1 without one."]
    )
    if one.state not in ACCEPTING:
        return PlanEffect(notes=[f"{instance} is {one.state} and has no keys now; the weight counts when it takes requests again.", *notes])
    shares = [key_shares(entries)[instance] for entries in ([use.entry(anchors) for use in pool.instances], new)]
    effect = _rearranged(pool, new, policies.entry(pool.facts.routing.policy))
    words = f"{instance} has {shares[1]:.1%} of the keys then, {shares[0]:.1%} now."
    return replace(effect, notes=[words, *effect.notes, *notes])


def _rearranged(pool: PoolUse, new: Sequence[InstanceEntry], policy: PolicyEntry) -> PlanEffect:
    """The keys that change owner when the instances have these anchors, and the sessions that follow them."""
    old = [use.entry(pool.facts.anchors_per_instance) for use in pool.instances]
    moves = moved_shares(old, new)
    moved_share = sum(moves.values())
    if policy.ring is not RingUse.EVERY_REQUEST:
        words = "only to place new sessions" if policy.ring is RingUse.NEW_SESSIONS else "for nothing"
        return PlanEffect(key_share_moved=moved_share, notes=[f"{policy.name} uses the ring {words}: no bound session moves."])
    shares, bound = key_shares(old), {use.id: use.bound_sessions for use in pool.instances}
    cached = {use.id: use.cache_tokens for use in pool.instances}
    sessions = round(expected_sessions(moves, shares, bound))
    return PlanEffect(
        key_share_moved=moved_share,
        sessions_moved=sessions,
        cache_tokens_lost=round(expected_sessions(moves, shares, cached)),
        warnings=[f"About {sessions} of {pool.sessions} sessions move with their next request, and lose their cache."] if sessions else [],
        heavy=pool.is_heavy(sessions),
    )


def migrations_effect(pool: PoolUse, after: TableFacts, policies: PolicyCatalogue) -> PlanEffect:
    """What stays where it is from now on, or may move again. No session moves by the change itself."""
    policy, bound = after.routing.policy, pool.sessions
    if after.routing.migrations != MIGRATIONS_PAUSED:
        return PlanEffect(notes=[f"{policy} moves sessions and queued requests again, by its own rules."])
    if not policies.keeps_homes(after.routing):
        return PlanEffect(notes=[f"{policy} keeps no session at a home, so none migrates anyway; queued requests wait where they are."])
    return PlanEffect(
        notes=[
            f"{bound} sessions stay where they are, and queued requests wait where they do; new sessions are placed by {policy}.",
            "What drains or is lost still gives its sessions up.",
        ],
        warnings=["Nothing relieves an instance that becomes hot, until migrations go on."],
    )
