"""The effect of a change, by its kind: what is known is read here, what follows from it is computed beside."""

from datetime import datetime

from fairlead.pools import PoolSpec, TableFacts
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import PoolKey
from fairlead_api.services.plans.evidence import EvidenceReader, Replay
from fairlead_api.services.plans.routing_effects import policy_effect, ring_effect
from fairlead_api.services.plans.scaling_effects import scale_effect
from fairlead_api.services.plans.target_effects import limit_seconds, rejection_effect, slo_effect
from fairlead_client.resources.plans import PlanEffect, PlanKind


class Effects:
    """Estimates effects from the evidence and the policies that this process knows."""

    def __init__(self, evidence: EvidenceReader, policies: PolicyCatalogue) -> None:
        self._evidence = evidence
        self._policies = policies

    async def of(self, kind: PlanKind, pool: PoolKey, replicas_before: int, after: PoolSpec, now: datetime) -> PlanEffect:
        """What `after` would do to the pool. Raises NotFound for a pool whose spec was never usable."""
        use, facts = await self._evidence.use(pool, now), after.facts()
        match kind:
            case PlanKind.SCALE:
                return scale_effect(use, replicas_before, after.replicas)
            case PlanKind.POLICY:
                return policy_effect(use, facts, self._policies)
            case PlanKind.RING:
                return ring_effect(use, facts, self._policies)
            case PlanKind.SLO:
                in_time = await self._evidence.in_time(pool, facts.slo.ttft_seconds, now)
                return slo_effect(use, facts.slo, in_time, await self._refused(pool, facts, now))
            case PlanKind.EARLY_REJECTION:
                return rejection_effect(facts.early_rejection, await self._refused(pool, facts, now))

    async def _refused(self, pool: PoolKey, facts: TableFacts, now: datetime) -> Replay | None:
        limit = limit_seconds(facts)
        return None if limit is None else await self._evidence.over_limit(pool, limit, now)
