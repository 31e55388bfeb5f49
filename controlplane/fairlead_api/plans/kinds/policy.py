"""Changes the routing policy of a pool, or the policy's parameters."""

from fairlead.amounts import amount
from fairlead.pools import TableFacts
from fairlead.routing.contracts.catalogues import PolicyCatalogue, RingUse
from fairlead_api.plans.changes import SpecQuestion, section_kind
from fairlead_api.plans.evidence import PoolUse
from fairlead_api.plans.questions import Known, Present, Tried
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect
from fairlead_client.simulation_jobs import PoolChange


class PolicyQuestion(SpecQuestion):
    """Finds the effect of a changed routing policy."""

    async def effect(self, known: Known) -> PlanEffect:
        return policy_effect(known.use, self.after.facts(), known.policies)

    def tried(self, _present: Present) -> Tried:
        routing = self.after.facts().routing
        planned = PoolChange(policy=routing.policy, parameters=dict(routing.parameters), prefills_in_flight=routing.prefills_in_flight)
        return Tried(as_planned=planned)


def policy_effect(pool: PoolUse, after: TableFacts, policies: PolicyCatalogue) -> PlanEffect:
    """Return the effect of a changed policy or of its changed parameters. Routers apply the change with the next
    routing table, without a restart.

    If the new policy places every request by the ring, or binds no sessions, all bound sessions count as moving. Some
    of them may already be bound to the instance that the ring would choose, but no record shows which.
    """
    before, bound = pool.facts.routing.policy, pool.sessions
    wanted = policies.entry(after.routing.policy)
    if before == wanted.name or not bound:
        return PlanEffect()
    if policies.keeps_homes(after.routing) and wanted.ring is not RingUse.EVERY_REQUEST:
        homes = "its home" if bound == 1 else "their homes"
        return PlanEffect(notes=[f"{amount(bound, 'session', 'keep')} {homes}; {wanted.name} decides from the next request on."])
    how = "places every request by the ring" if wanted.ring is RingUse.EVERY_REQUEST else "binds no sessions"
    return PlanEffect(
        sessions_moved=bound,
        cache_tokens_lost=sum(use.cache_tokens for use in pool.instances),
        warnings=[f"{wanted.name} {how}: up to {amount(bound, 'session')} can move with the next request, and lose the cached context."],
        heavy=pool.is_heavy(bound),
    )


KIND = section_kind(PlanKind.POLICY, lambda after: PolicyQuestion(after=after))
