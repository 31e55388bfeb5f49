"""Prefills: the time to compute a request's prompt on each instance. If an instance can fetch the longest cached prefix
from another instance, and fetching is faster, the time with fetching is used.
"""

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

import numpy as np

from fairlead.reports.bindings import Binding
from fairlead.routing.choosing.transfers import least_busy_holder, sending_seconds
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import FetchSpeed, PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import FloatVector, IntVector, PoolVectors
from fairlead.values import value

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_LEAST_LOADED: Final = DecisionReason.LEAST_LOADED

COPY_COST = 0.1
"""A fetch of cached blocks is charged this many seconds for each second of prefill that it saves (docs/experiments.md,
"Where").
"""


Tokens = TypeVar("Tokens", IntVector, list[int])
Seconds = TypeVar("Seconds", FloatVector, list[float])


@value
class Prefills(Generic[Tokens, Seconds]):
    """The duration of a request's prefill on each instance, and how much of its prompt each instance holds."""

    hits: Tokens
    """Tokens of the prompt that each instance is known to hold, from the prefix index."""
    known: Tokens
    """Cached prompt tokens of each instance. Unlike in `hits`, the session's present instance is assumed to hold the
    context of the session.
    """
    most: int
    """The largest number of the prompt's tokens that an instance is known to hold."""
    alone: Seconds
    """Seconds of the prefill on each instance if nothing is fetched."""
    seconds: Seconds
    holder: int
    """Index of the instance from which other instances may fetch the prefix."""

    def source_for(self, index: int) -> int | None:
        """Return the index of the instance from which instance `index` should fetch the prefix; None if it should
        compute the prefix itself.
        """
        return self.holder if self.hits[index] < self.most and self.seconds[index] < self.alone[index] else None

    def reason(self, index: int) -> DecisionReason:
        """Return the reason code for choosing the instance at `index` if the instance fetches nothing."""
        if len(self.hits) == 1:
            return DecisionReason.ONLY_INSTANCE
        hit = self.hits[index]
        if self.known[index] > hit:
            return DecisionReason.SESSION_BOUND
        if not hit:
            return _LEAST_LOADED
        return DecisionReason.PREFIX_AFFINITY if hit >= self.most else DecisionReason.PREFIX_OUTWEIGHED


def prefills_of(
    request: RoutingRequest, home: Binding | None, view: PoolView, vectors: PoolVectors, *, fetch: bool
) -> Prefills[IntVector, FloatVector]:
    """Return the prefills on each instance. If `fetch` is true and engines can fetch, an instance fetches the longest
    prefix where this saves time.
    """
    loads = vectors.loads
    hits = view.hit_vector(request)
    holder = int(hits.argmax())
    most = int(hits[holder])
    known = hits if home is None else with_home(request, home, loads, hits, most)
    alone = seconds = view.prefill_vector(request, known)
    speed = view.fetching(request) if most and fetch else None
    if speed is not None:
        if loads[holder].transfers_out:
            holder = least_busy_holder(hits, most, vectors)
        seconds = np.minimum(alone, fetching_seconds(hits, alone, holder, loads[holder], speed))
    return Prefills(hits=hits, known=known, most=most, alone=alone, seconds=seconds, holder=holder)


def prefills_one_by_one(
    request: RoutingRequest, home: Binding | None, view: PoolView, loads: Sequence[InstanceLoad]
) -> Prefills[list[int], list[float]]:
    """Return the prefills for up to `FEW` instances, computed in a loop; only for pools that cannot fetch."""
    held = view.hit_tokens_everywhere(request)
    hits = [held.get(load.entry.id, 0) for load in loads]
    most = max(hits)
    known = hits if home is None else with_home(request, home, loads, hits, most)
    by_hit = {hit: view.prefill_seconds(request, hit) for hit in set(known)}
    seconds = list(map(by_hit.__getitem__, known))
    if view.is_tiered and (loading := view.loading_vector(request)) is not None:
        seconds = [one + load for one, load in zip(seconds, loading.tolist(), strict=True)]
    return Prefills(hits=hits, known=known, most=most, alone=seconds, seconds=seconds, holder=hits.index(most))


def fetching_seconds(hits: IntVector, alone: FloatVector, holder: int, source: InstanceLoad, speed: FetchSpeed) -> FloatVector:
    """Return the cost of each prefill, in seconds, if its instance first fetches the longer prefix held by `source`,
    which has index `holder`. `alone` is the cost without fetching.

    The cost is the time of the fetch, plus the time to compute the rest of the prompt, plus a tenth of the time saved.
    The last term keeps sessions in one place and avoids needless copies in caches. If the prefix held by `source` is
    not longer than the instance's own, the cost is at least `alone`.
    """
    per_token = sending_seconds(1, source.transfers_out, speed)
    fixed = float(hits[holder]) * per_token + speed.latency_seconds + (1 - COPY_COST) * float(alone[holder])
    seconds: FloatVector = COPY_COST * alone - per_token * hits + fixed
    return seconds


def with_home(request: RoutingRequest, home: Binding, loads: Sequence[InstanceLoad], hits: Tokens, most: int) -> Tokens:
    """Return `hits` with one change: the session's home is assumed to hold the session's whole context. After a restart
    of this router, or if another router served the last turn, this router has not recorded the context.

    `hits` is returned unchanged if some instance is known to hold at least half of the context. `most` is the largest
    of `hits`.
    """
    context = min(home.context_tokens, request.prompt_tokens - 1)
    if 2 * most >= context:
        return hits
    for index, load in enumerate(loads):
        if load.entry.id == home.instance:
            known = hits.copy()
            known[index] = context
            return known
    return hits
