"""Use case: what the operator advises, as it does in the modes `Advise`, becomes a proposal: a stored plan that waits.

A proposal is a plan like a person's: it has the effect, the simulation, the patch for Git and the undo of any plan, and
somebody with the role for it applies it. This job only makes it, once for each change that is advised, and withdraws it
when the advice is withdrawn or asks for another change. A change that cannot be planned now, because the Kubernetes API
is away or refuses it, is tried again at the next look.
"""

import logging
from collections.abc import Container, Sequence
from datetime import datetime
from typing import Protocol

from fairlead.advice.advising import advise
from fairlead.advice.findings import Cause
from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_api.advice.asking import SituationReader, Situations, plan_request
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import ServiceError
from fairlead_client.resources.access import AccessRole, Identity
from fairlead_client.resources.plan_kinds import PlanRequest
from fairlead_client.resources.plans import PROPOSER, Plan, Proposal

_log = logging.getLogger(__name__)

_ITSELF = Caller(
    identity=Identity(subject=PROPOSER, role=AccessRole.SYSTEM_OPERATOR, source="advice", expires_at=None),
    key=b"",
    request_id="advice",
)


class Planner(Protocol):
    """Makes plans, lists those that wait, and withdraws them."""

    async def plan(
        self, pool: PoolKey, request: PlanRequest, caller: Caller, now: datetime, *, proposal: Proposal | None = None
    ) -> Plan: ...

    async def waiting(self, now: datetime) -> Sequence[Plan]: ...

    async def withdraw(self, plan_id: str) -> None: ...


def advised(everything: Situations) -> Sequence[tuple[str, Proposal]]:
    """The proposals that the operator's advice asks for now, by pool. Pure."""
    found = [one for one in advise(everything.pools) if one.cause is Cause.SCALING_ADVISED]
    return [(one.pool, Proposal(because=one.sentence, request=plan_request(one.remedy))) for one in found if one.remedy is not None]


def outdated(waiting: Sequence[Plan], wanted: Sequence[tuple[str, Proposal]], examined: Container[str]) -> Sequence[Plan]:
    """Proposals of the examined pools that nothing advises any more. Pure."""
    kept = [(pool, one.request) for pool, one in wanted]
    return [one for one in waiting if one.proposal and one.pool in examined and (one.pool, one.proposal.request) not in kept]


class Proposing:
    """Makes proposals and withdraws them."""

    def __init__(self, reader: SituationReader, plans: Planner) -> None:
        self._reader = reader
        self._plans = plans

    async def look(self, now: datetime) -> None:
        """One look at all pools."""
        everything = await self._reader.situations(None, now)
        wanted, waiting = advised(everything), await self._plans.waiting(now)
        for plan in outdated(waiting, wanted, {one.pool for one in everything.pools}):
            await self._plans.withdraw(plan.id)
        there = [(one.pool, one.proposal.request) for one in waiting if one.proposal]
        for pool, proposal in wanted:
            if (pool, proposal.request) not in there:
                await self._propose(pool, proposal, now)

    async def _propose(self, pool: str, proposal: Proposal, now: datetime) -> None:
        try:
            await self._plans.plan(PoolKey.parse(pool), proposal.request, _ITSELF, now, proposal=proposal)
        except (ServiceError, InvalidInput) as error:
            _log.warning("advice could not be planned", extra={"pool": pool, "error": str(error)})
