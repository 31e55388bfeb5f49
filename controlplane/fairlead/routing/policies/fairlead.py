"""Fairlead's own policy: prefix affinity that grows with load, over all instances, and queues that keep what can be in time in time.

The instance with the least `wait + affinity x prefill` takes the request. Wait leaves out what is late, as it stands behind. Affinity, the worth of a
cached second of prefill against a second of waiting, is 1 on an idle pool, where only the first token's time counts, and grows with the pool's load,
as work saved then shortens everyone's wait. The rest of the policy is its queue discipline, `deadline` (see `deadline_queue`).
"""

from dataclasses import dataclass, replace

import numpy as np

from fairlead.reports import BindingReason
from fairlead.routing.homes import binding_reason
from fairlead.routing.parameters import DISCIPLINES, QueueParameters, parameter
from fairlead.routing.policies.candidates import FALLBACKS, ordered_decision
from fairlead.routing.policies.free_choice import FreeChoice
from fairlead.routing.protocols import Decision, DecisionReason, PoolView, RoutingRequest
from fairlead.routing.vectors import IntVector, lowest


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


class Fairlead(FreeChoice):
    """The policy `fairlead`. Bindings record where a session's KV cache is, and guide a router that has not seen the session itself."""

    name = "fairlead"
    binds = True

    def __init__(self, parameters: FairleadParameters) -> None:
        self._parameters = parameters

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        vectors = view.vectors()
        hits = view.hit_vector(request)
        known = self._with_home(request, view, hits)
        wait = vectors.wait_microseconds / 1e6
        prefill = view.prefill_vector(request, known)
        costs = wait + self.affinity(float(wait.mean()) / view.table.slo.ttft_seconds) * prefill
        order = lowest(costs, FALLBACKS + 1, vectors.decode_tokens)
        best = order[0]
        if known is not hits and known[best] > hits[best]:
            reason = DecisionReason.SESSION_BOUND
        elif not known[best]:
            reason = DecisionReason.LEAST_LOADED
        else:
            reason = DecisionReason.PREFIX_AFFINITY if known[best] == known.max() else DecisionReason.SLO_OVERLOADED
        chosen = vectors.loads[best].entry.id
        decision = ordered_decision(request, view, order, hits, costs, reason, self._bind(request, chosen, view, now))
        return replace(decision, ttft_seconds=float(wait[best] + prefill[best]))

    def affinity(self, load: float) -> float:
        """Seconds of waiting that a second of prefill is worth at this mean wait over the TTFT target."""
        idle, busy = self._parameters.idle_affinity, self._parameters.busy_affinity
        return idle + (busy - idle) * min(1.0, load / self._parameters.busy_load)

    def _with_home(self, request: RoutingRequest, view: PoolView, hits: IntVector) -> IntVector:
        """The hits, with the session's home taken to hold the session's context when nobody is seen to hold half as much.

        That is so after a restart of this router, or when the session came through another one.
        """
        home = None if request.session is None else view.binding(request.session)
        if home is None or home.instance is None:
            return hits
        context = min(home.context_tokens, request.prompt_tokens - 1)
        if 2 * int(hits.max()) >= context:
            return hits
        for index, load in enumerate(view.candidates()):
            if load.entry.id == home.instance:
                known = np.array(hits)
                known[index] = context
                return known
        return hits

    def _bind(self, request: RoutingRequest, chosen: str, view: PoolView, now: float) -> BindingReason | None:
        if request.session is None:
            return None
        return binding_reason(view.binding(request.session), chosen, BindingReason.SLO, view, now)
