"""Estimates the effect of another policy, and of another number of anchors on the ring. Pure."""

from fairlead.pools import TableFacts
from fairlead.routing.contracts.catalogues import PolicyCatalogue, RingUse
from fairlead.routing.knowledge.ring_changes import expected_sessions, moved_shares
from fairlead.routing.knowledge.rings import key_shares
from fairlead_api.services.plans.evidence import PoolUse
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
    old = [use.entry(pool.facts.anchors_per_instance) for use in pool.instances]
    new = [use.entry(after.anchors_per_instance) for use in pool.instances]
    moves, policy = moved_shares(old, new), policies.entry(after.routing.policy)
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
