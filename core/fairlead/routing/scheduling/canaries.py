"""Canaries: during a rollout, the instances of the new revision (the canary) serve whole sessions. A session stays with
the revision that served it first.

A bound session stays among the instances with the revision of its present instance. A session that is not bound is
placed on the canary if the hash of its name is below the canary's share. So all routers make the same choice, and a
growing share adds sessions to the canary without removing any. Requests are recorded when they end, so that the canary
can be judged.
"""

from dataclasses import replace

from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from fairlead.reports.canaries import CanarySample
from fairlead.routing.contracts.decisions import Decision
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import PolicyInForce
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.knowledge.views import LiveView
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.scheduling.subsets import choose_within
from fairlead.tables import CanaryFacts, PoolKey, RoutingTable
from fairlead.targets import instance_of

_PARTS = 2**64


def place_of(session: str) -> float:
    """Return the session's position in [0, 1), from a hash of its name. Sessions below the canary's share go to the
    canary.
    """
    return xxh3_64_intdigest(f"canary/{session}".encode()) / _PARTS


class Canary:
    """The canary in a routing table: the instances of the new revision, and all other instances."""

    def __init__(self, table: RoutingTable, facts: CanaryFacts) -> None:
        self.facts = facts
        self.ours = frozenset(facts.instances)
        self._others = tuple(entry.id for entry in table.instances if entry.id not in self.ours)

    def choose(
        self, request: RoutingRequest, home: InstanceLoad | None, policy: PolicyInForce, view: LiveView, now: float
    ) -> Decision | None:
        """Return the policy's choice among the instances with the revision that the session must use; None if none of
        these instances accepts requests. `home` is the load of the session's instance; None if the session is not
        bound.
        """
        ours = home.entry.id if home is not None and home.entry.accepting else None
        is_ours = self.has(ours) if ours is not None else place_of(name_of(request)) < self.facts.share
        part = self.facts.instances if is_ours else self._others
        return choose_within(replace(request, within=part), part, policy, view, now) if part else None

    def has(self, target: str) -> bool:
        """Return whether the instance belongs to the new revision."""
        return instance_of(target) in self.ours


def canary_of(table: RoutingTable) -> Canary | None:
    """Return the table's canary; None if the table has no canary."""
    return None if table.canary is None else Canary(table, table.canary)


def name_of(request: RoutingRequest) -> str:
    """Return the key of the request's session: its name. If the session has no name, the key is made from the beginning
    of the conversation.
    """
    return request.session or f"{request.beginning or request.first_bytes_hash:x}"


class CanarySamples:
    """A buffer of finished canary requests, emptied by `take`. It holds at most `limit` requests; `dropped` counts the
    requests that did not fit.
    """

    def __init__(self, pool: PoolKey, limit: int) -> None:
        self._pool = pool
        self._limit = limit
        self._samples: list[CanarySample] = []
        self.dropped = 0

    def ended(
        self,
        canary: Canary,
        tracked: TrackedRequest,
        instance: str,
        now: float,
        *,
        decoding: int,
        tpot_seconds: float | None = None,
        output_tokens: int = 0,
        cached_tokens: int | None = None,
        failed: bool = False,
    ) -> None:
        """Record a request that ended at `instance`, or that failed for good. `decoding` is the number of other
        requests that decoded on the instance.
        """
        if not instance or tracked.dispatched_at is None:
            return
        if len(self._samples) >= self._limit:
            self.dropped += 1
            return
        first, sent, request = tracked.first_token_at, tracked.dispatched_at, tracked.request
        self._samples.append(
            CanarySample(
                pool=self._pool,
                at=now,
                step=canary.facts.step,
                session=xxh3_64_hexdigest(name_of(request).encode()),
                canary=canary.has(instance),
                priority_class=request.priority_class,
                prompt_tokens=request.prompt_tokens,
                hit_tokens=tracked.hit_tokens,
                cached_tokens=cached_tokens,
                decoding=decoding,
                ttft_seconds=None if failed or first is None else max(0.0, first - sent),
                tpot_seconds=tpot_seconds,
                output_tokens=output_tokens,
                failed=failed,
            )
        )

    def take(self) -> tuple[CanarySample, ...]:
        """Return the recorded requests that ended after the last call."""
        taken, self._samples = tuple(self._samples), []
        return taken
