"""Use case: turns two sources into proposals, which are stored plans that wait for a person. The sources are the
operator's advice (in the modes `Advise`) and the schedules that a forecast proposes.

A proposal is a plan like one that a person makes: it has the effect, the simulation, the patch for Git and the undo of
any plan, and a person with the needed role applies it. This job makes one proposal for each advised change, and
withdraws the proposal when the advice is withdrawn or advises another change. If a change cannot be planned now because
the Kubernetes API is unreachable or refuses it, the next round tries again.
"""

import logging
from collections.abc import Container, Sequence
from datetime import datetime
from typing import Protocol

from fairlead.advice import scaling_advice
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
    """Makes and withdraws plans, and lists the plans that wait."""

    async def plan(
        self, pool: PoolKey, request: PlanRequest, caller: Caller, now: datetime, *, proposal: Proposal | None = None
    ) -> Plan: ...

    async def waiting(self, now: datetime) -> Sequence[Plan]: ...

    async def withdraw(self, plan_id: str) -> None: ...


Wanted = Sequence[tuple[str, Proposal]]
"""The proposals that a source wants, each with the name of its pool."""


class Source(Protocol):
    """A source of proposals. `owns` says whether a proposal's request came from this source; only then may the source
    withdraw the proposal.
    """

    def owns(self, request: PlanRequest) -> bool: ...

    async def proposals(self, now: datetime) -> tuple[Wanted, Container[str]]:
        """Return the proposals that the source wants now, and the pools that it could examine."""


class Advised:
    """The source of proposals from the operator's advice. A proposal counts as this source's own if it belongs to no
    source in `others`.
    """

    def __init__(self, reader: SituationReader, *others: Source) -> None:
        self._reader = reader
        self._others = others

    def owns(self, request: PlanRequest) -> bool:
        return not any(other.owns(request) for other in self._others)

    async def proposals(self, now: datetime) -> tuple[Wanted, Container[str]]:
        everything = await self._reader.situations(None, now)
        return advised(everything), {one.pool for one in everything.pools}


def advised(everything: Situations) -> Wanted:
    """Return the proposals that follow from the operator's present advice, each with the name of its pool. They include
    advice that the list of findings hides because another finding explains the same symptom. Pure.
    """
    found = [one for pool in everything.pools for one in scaling_advice.find(pool)]
    return [(one.pool, Proposal(because=one.sentence, request=plan_request(one.remedy))) for one in found if one.remedy is not None]


def outdated(waiting: Sequence[Plan], wanted: Wanted, examined: Container[str]) -> Sequence[Plan]:
    """Return the waiting proposals of the `examined` pools that are not among the `wanted` proposals. Pure."""
    kept = [(pool, one.request) for pool, one in wanted]
    return [one for one in waiting if one.proposal and one.pool in examined and (one.pool, one.proposal.request) not in kept]


class Proposing:
    """Makes the proposals that a source wants, and withdraws proposals that it no longer wants."""

    def __init__(self, source: Source, plans: Planner) -> None:
        self._source = source
        self._plans = plans

    async def look(self, now: datetime) -> None:
        """Make and withdraw proposals for all pools once."""
        wanted, examined = await self._source.proposals(now)
        waiting = [one for one in await self._plans.waiting(now) if one.proposal and self._source.owns(one.proposal.request)]
        for plan in outdated(waiting, wanted, examined):
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
