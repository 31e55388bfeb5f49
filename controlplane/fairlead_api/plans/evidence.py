"""The facts about a pool's instances, sessions and traffic from which the effects of a planned change are estimated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from fairlead.hand_overs import Transfers
from fairlead.instances import InstanceState, Role
from fairlead.pools import TableFacts
from fairlead.tables import InstanceEntry, PoolKey
from fairlead_api.infra.errors import NotFound

NO_TRANSFERS = Transfers(tried=0, came=0, mean_seconds=0.0)
HEAVY_SHARE = 0.10
"""Share of a pool's sessions above which a change that moves them counts as heavy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUse:
    """An instance that is not in the state Gone, with the bound sessions and cached tokens that its pool would lose
    with it.
    """

    id: str
    role: Role = Role.BOTH
    state: InstanceState
    weight: float = 1.0
    bound_sessions: int
    cache_tokens: int
    in_flight: int
    recent_sessions: int = 0
    """Number of the instance's sessions that had a request within the last five minutes; `recent_tokens` is the number
    of these sessions' tokens.
    """
    recent_tokens: int = 0

    def entry(self, anchors: int) -> InstanceEntry:
        """Return the instance's entry in a routing table in which each instance has `anchors` anchors."""
        return InstanceEntry(id=self.id, address="", role=self.role, state=self.state, weight=self.weight, anchors=anchors)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUse:
    """The present traffic, sessions and instances of a pool, and the facts from its spec that are in force.

    The whole pool receives `requests_per_second` requests with `miss_tokens_per_second` prompt tokens that need
    prefill; None = no traffic was seen. `prefill_tokens_per_second` is the measured speed of one instance; None = not
    measured yet. `transfers` summarizes the transfers of KV blocks in the last day.
    """

    facts: TableFacts
    instances: Sequence[InstanceUse]
    attainment: float | None
    requests_per_second: float | None
    miss_tokens_per_second: float | None
    prefill_tokens_per_second: float | None = None
    transfers: Transfers = NO_TRANSFERS
    routers: int = 1

    @property
    def sessions(self) -> int:
        return sum(use.bound_sessions for use in self.instances)

    def instance(self, name: str) -> InstanceUse:
        """Return the instance of this name. Raises NotFound."""
        for use in self.instances:
            if use.id == name:
                return use
        raise NotFound("instance", name)

    def is_heavy(self, sessions: float) -> bool:
        """Return whether a change that moves this number of sessions is heavy."""
        return sessions > 0 and sessions > HEAVY_SHARE * self.sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The share of recorded requests to which something would have happened, for example that they would have been
    refused. `requests` is the number of requests that were examined; they were recorded in the last `seconds`.
    """

    share: float
    requests: int
    seconds: float


class EvidenceReader(Protocol):
    """Reads the evidence from the database. Raises NotFound for a pool without a usable spec."""

    async def use(self, pool: PoolKey, now: datetime) -> PoolUse:
        """Return the pool's present instances and sessions, and its traffic of the last five minutes."""

    async def latencies(self, pool: PoolKey, now: datetime) -> Mapping[str, Mapping[int, int]]:
        """Return the number of the past day's requests in each latency cell (`fairlead.latency_cells`), for each
        priority class.
        """

    async def over_limit(self, pool: PoolKey, ttft_seconds: float, now: datetime) -> Replay | None:
        """Return the share of sampled decisions in which every candidate's predicted TTFT was above `ttft_seconds`.
        None if there is no sampled decision.
        """
