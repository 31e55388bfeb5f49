"""Cordoning: an instance leaves service without being replaced, or serves again."""

from dataclasses import replace

from fairlead.amounts import amount
from fairlead.instance_marks import CORDONED_ANNOTATION
from fairlead.instances import ACCEPTING, InstanceState
from fairlead.routing.contracts.catalogues import PolicyCatalogue, RingUse
from fairlead.routing.knowledge.ring_changes import expected_sessions, moved_shares
from fairlead.routing.knowledge.rings import key_shares
from fairlead_api.plans.changes import MarkQuestion, mark_kind
from fairlead_api.plans.evidence import PoolUse
from fairlead_api.plans.hand_overs import forecast
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Tried
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect


class CordonQuestion(MarkQuestion):
    """Finds the effect of cordoning or uncordoning an instance."""

    async def effect(self, known: Known) -> PlanEffect:
        return (cordon_effect if self.is_set else uncordon_effect)(known.use, self.instance, known.policies)

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("the effect above is computed from the sessions and keys of this instance")


def cordon_effect(pool: PoolUse, instance: str, policies: PolicyCatalogue) -> PlanEffect:
    """Return the effect of cordoning: the instance keeps its requests in flight and gets no new requests, and its
    sessions move with their next request.

    The instance is not replaced, so the other instances take over its load. Raises NotFound.
    """
    one = pool.instance(instance)
    if one.state not in ACCEPTING:
        return PlanEffect(notes=[f"{instance} is {one.state} and gets no new requests anyway."])
    left = [use for use in pool.instances if use.state in ACCEPTING and use.role is one.role and use is not one]
    go_on = f"{amount(len(left), 'instance')} of role {{}} {'goes' if len(left) == 1 else 'go'} on serving"
    alone = f"No other instance of role {one.role} takes requests: every new request will be refused until it is uncordoned."
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
        hand_over=forecast(pool, [one], replaced=False),
    )


def uncordon_effect(pool: PoolUse, instance: str, policies: PolicyCatalogue) -> PlanEffect:
    """Return the effect of uncordoning: the keys that the instance takes back, and the sessions that follow them.
    Raises NotFound.
    """
    one = pool.instance(instance)
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
        warnings=[f"About {sessions:,} of {pool.sessions:,} sessions follow their keys to it, and lose their cache."] if sessions else [],
        heavy=pool.is_heavy(sessions),
    )


KIND = mark_kind(PlanKind.CORDON, CORDONED_ANNOTATION, CordonQuestion, sets=True)
