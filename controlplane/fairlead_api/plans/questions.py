"""The two questions about a planned change: what is its effect, and which simulation can show the effect? Each kind of
plan implements them as a `Question`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.pools import PoolSpec, TableFacts, parse_spec
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import PoolKey
from fairlead_api.plans.evidence import EvidenceReader, PoolUse, Replay
from fairlead_client.resources.plans import PlanEffect
from fairlead_client.simulation_jobs import PoolChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The known facts about a pool for which a change is planned, and the reader of further evidence."""

    pool: PoolKey
    use: PoolUse
    policies: PolicyCatalogue
    evidence: EvidenceReader
    now: datetime

    async def refused(self, facts: TableFacts) -> Replay | None:
        """Return the share of recorded decisions whose requests would be refused early. None if early rejection is off,
        or if no decision was recorded.
        """
        limit = limit_seconds(facts)
        return None if limit is None else await self.evidence.over_limit(self.pool, limit, self.now)


def limit_seconds(facts: TableFacts) -> float | None:
    """Return the predicted TTFT in seconds above which a request is refused early; None if early rejection is off."""
    return None if facts.early_rejection.mode == "Disabled" else facts.early_rejection.headroom * facts.slo.ttft_seconds


class CannotSimulate(Exception):
    """No simulation can show the effect of the change; `str(error)` is the reason, worded for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A pool before a change. `instances` is the number of instances that take requests, by role. `spec` is the pool's
    spec, or None if the plan changes another object. A new instance needs `startup_seconds` before it serves.
    """

    spec: Mapping[str, Any] | None
    use: PoolUse
    instances: Mapping[Role, int]
    startup_seconds: float

    def parsed(self) -> PoolSpec:
        """Return the parsed spec. Raises CannotSimulate for a spec that would be refused."""
        try:
            return parse_spec(self.spec or {})
        except InvalidInput as error:
            raise CannotSimulate("the present spec is refused, so there is nothing to compare with") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The pools to simulate for a change: as planned, and as at present. `instances` has the number of instances at the
    simulation's start, by role; a role that is missing starts with the instances that take requests now.
    """

    as_planned: PoolChange
    as_it_is: PoolChange = field(default_factory=PoolChange)
    instances: Mapping[Role, int] = field(default_factory=dict)


class Question(Protocol):
    """Finds the effect of a planned change, and the simulation that can show it."""

    async def effect(self, known: Known) -> PlanEffect:
        """Return the expected effect. Raises NotFound for an instance that does not exist."""

    def tried(self, present: Present) -> Tried:
        """Return the pools to simulate to show the effect of the change. Raises CannotSimulate."""
