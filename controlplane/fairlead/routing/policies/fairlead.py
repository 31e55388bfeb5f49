"""Fairlead's own policy: prefix affinity that grows with load, over all instances, and queues that keep what can be in time in time.

The instance with the least `wait + affinity x prefill` takes the request. Wait leaves out what is late, as it stands behind. Affinity, the worth of a
cached second of prefill against a second of waiting, is 1 on an idle pool, where only the first token's time counts, and grows with the pool's load,
as work saved then shortens everyone's wait. The rest of the policy is its queue discipline, `deadline` (see `deadline_queue`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from fairlead.reports import Binding, BindingReason
from fairlead.routing.homes import binding_reason
from fairlead.routing.parameters import DISCIPLINES, QueueParameters, parameter
from fairlead.routing.policies.candidates import FALLBACKS, score
from fairlead.routing.policies.free_choice import FreeChoice
from fairlead.routing.policies.mooncake import least_busy_holder, transfer_seconds
from fairlead.routing.protocols import Decision, DecisionReason, InstanceLoad, PoolView, RoutingRequest
from fairlead.routing.vectors import FloatVector, IntVector, lowest

COPY_COST = 0.1
"""What a second of prefill saved by fetching counts for, against a second of prefill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FairleadParameters(QueueParameters):
    """Parameters of `fairlead`."""

    queue_discipline: str = parameter("text", "deadline", "As for every policy, but `deadline` unless told otherwise.", choices=DISCIPLINES)
    idle_affinity: float = parameter(
        "number", 1.0, "Seconds of waiting that a second of prefill is worth on an idle pool.", minimum=0.0, maximum=100.0
    )
    busy_affinity: float = parameter("number", 8.0, "The same on a busy pool.", minimum=0.0, maximum=100.0)
    busy_load: float = parameter(
        "number",
        0.5,
        "The pool is busy when its mean wait is this part of the TTFT target; affinity grows evenly until then.",
        minimum=0.001,
        maximum=100.0,
    )
    fetch: bool = parameter(
        "boolean", True, "Where engines can fetch KV blocks from each other, do so when that is predicted to be faster than computing them."
    )


class Fairlead(FreeChoice):
    """The policy `fairlead`. Bindings record where a session's KV cache is, and guide a router that has not seen the session itself."""

    name = "fairlead"
    binds = True

    def __init__(self, parameters: FairleadParameters) -> None:
        self._parameters = parameters

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        vectors = view.vectors()
        loads = vectors.loads
        hits = view.hit_vector(request)
        home = None if request.session is None else view.binding(request.session)
        known = hits if home is None else with_home(request, home, loads, hits)
        wait = vectors.wait_microseconds / 1e6
        prefill = view.prefill_vector(request, known)
        source = self._source(hits, view)
        if source is not None:
            fetched = fetching_seconds(request, view, hits, prefill, source)
            fetches = fetched < prefill
            prefill = np.minimum(prefill, fetched)
        costs = wait + self.affinity(float(wait.sum()) / len(loads) / view.table.slo.ttft_seconds) * prefill
        order = lowest(costs, FALLBACKS + 1, vectors.decode_tokens)
        best = order[0]
        chosen = loads[best].entry.id
        fetched_from = loads[source].entry.id if source is not None and fetches[best] else None
        speed = view.table.engine.prefill_tokens_per_second
        return Decision(
            instance=chosen,
            reason=DecisionReason.PREFIX_REPLICATED if fetched_from else _reason(best, hits, known),
            fallbacks=tuple([loads[index].entry.id for index in order[1:]]),
            candidates=tuple([score(request, loads[index], int(hits[index]), speed, float(costs[index])) for index in order[:2]]),
            bind=None if request.session is None else binding_reason(home, chosen, BindingReason.SLO, view, now),
            transfer_from=fetched_from,
            ttft_seconds=float(wait[best] + prefill[best]),
        )

    def _source(self, hits: IntVector, view: PoolView) -> int | None:
        """Index of the instance to fetch the prompt's prefix from, if engines can and one holds any."""
        if not self._parameters.fetch or view.table.engine.kv_transfer_bytes_per_second <= 0:
            return None
        holder = int(hits.argmax())
        if not hits[holder]:
            return None
        vectors = view.vectors()
        return least_busy_holder(hits, int(hits[holder]), vectors) if vectors.loads[holder].transfers_out else holder

    def affinity(self, load: float) -> float:
        """Seconds of waiting that a second of prefill is worth at this mean wait over the TTFT target."""
        idle, busy = self._parameters.idle_affinity, self._parameters.busy_affinity
        return idle + (busy - idle) * min(1.0, load / self._parameters.busy_load)


def fetching_seconds(request: RoutingRequest, view: PoolView, hits: IntVector, prefill: FloatVector, source: int) -> FloatVector:
    """What a prefill on each candidate counts for if it first fetches what `source` holds more of the prompt; infinite where that is nothing.

    That is the fetch, the rest of the prefill, and a tenth of what is saved, so that sessions stay together and caches do not fill with copies.
    """
    most = int(hits[source])
    rest = view.prefill_vector(request, hits[source : source + 1])
    seconds = transfer_seconds(most - hits, view.vectors().loads[source].transfers_out, view.table.engine)
    seconds += rest + COPY_COST * (prefill - rest)
    seconds[hits >= most] = inf
    return seconds


def with_home(request: RoutingRequest, home: Binding, loads: Sequence[InstanceLoad], hits: IntVector) -> IntVector:
    """The hits, with the session's home taken to hold the session's context when nobody is seen to hold half as much.

    That is so after a restart of this router, or when the session's last turn came through another one.
    """
    context = min(home.context_tokens, request.prompt_tokens - 1)
    if 2 * int(hits.max()) >= context:
        return hits
    for index, load in enumerate(loads):
        if load.entry.id == home.instance:
            known = np.array(hits)
            known[index] = context
            return known
    return hits


def _reason(best: int, hits: IntVector, known: IntVector) -> DecisionReason:
    if len(hits) == 1:
        return DecisionReason.ONLY_INSTANCE
    if known[best] > hits[best]:
        return DecisionReason.SESSION_BOUND
    if not hits[best]:
        return DecisionReason.LEAST_LOADED
    return DecisionReason.PREFIX_AFFINITY if hits[best] == known.max() else DecisionReason.SLO_OVERLOADED
