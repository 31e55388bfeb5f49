"""Changes the number of anchors that each instance has on the hash ring."""

from collections.abc import Sequence

from fairlead.pools import TableFacts
from fairlead.routing.contracts.catalogues import PolicyCatalogue, PolicyEntry, RingUse
from fairlead.routing.knowledge.ring_changes import expected_sessions, moved_shares
from fairlead.routing.knowledge.rings import key_shares
from fairlead.tables import InstanceEntry
from fairlead_api.plans.changes import SpecQuestion, section_kind
from fairlead_api.plans.evidence import PoolUse
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Tried
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect


class RingQuestion(SpecQuestion):
    """Finds the effect of a changed number of anchors per instance."""

    async def effect(self, known: Known) -> PlanEffect:
        return ring_effect(known.use, self.after.facts(), known.policies)

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("the share of keys that move is computed from the ring itself")


def ring_effect(pool: PoolUse, after: TableFacts, policies: PolicyCatalogue) -> PlanEffect:
    """Return the effect of a changed number of anchors per instance: the keys that change owner, and the sessions that
    follow them.
    """
    new = [use.entry(after.anchors_per_instance) for use in pool.instances]
    return rearranged(pool, new, policies.entry(after.routing.policy))


def rearranged(pool: PoolUse, new: Sequence[InstanceEntry], policy: PolicyEntry) -> PlanEffect:
    """Return the effect of new positions on the ring: the keys that change owner, and the sessions that follow them."""
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
        warnings=[f"About {sessions:,} of {pool.sessions:,} sessions move with their next request, and lose their cache."]
        if sessions
        else [],
        heavy=pool.is_heavy(sessions),
    )


KIND = section_kind(PlanKind.RING, lambda after: RingQuestion(after=after))
