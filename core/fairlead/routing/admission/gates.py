"""Gates: the early rejection modes of a pool. A gate is called when a request arrives, and again when its prompt has
been computed.

    Disabled     refuses nothing
    Load         at arrival: refuses if no instance meets the TTFT SLO, or if no instance meets the TPOT SLO at
                 its present load
    Predicted    at arrival: like `Load` for the TTFT SLO; for the TPOT SLO, uses the decode load that is
                 predicted for the time at which the request will begin to decode
    AfterPrefill at arrival: like `Load` for the TTFT SLO; checks the decode load only after the prefill. A
                 refusal then wastes the prefill (Mooncake's baseline)

A gate refuses a request if the load is above `headroom`. At arrival, the request's priority class may use only its
share of `headroom`. Decode loads refuse nothing while an instance is idle. If the routing table declares the duration
of decode steps, as it does for simulated engines, gates use the declared duration. Otherwise the duration is measured
on finished requests. Decode loads are 0 until the duration is known.

Gates refuse only by estimates, so every refusal by a gate is dropped while an instance is idle
(`fairlead.routing.scheduling.trying`).
"""

from collections.abc import Callable
from math import inf, isnan
from typing import Protocol

import numpy as np

from fairlead.errors import UnknownName
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.admission.forecasts import DecodeForecast
from fairlead.routing.admission.loads import best_ttft_seconds, decode_load, decode_loads
from fairlead.routing.admission.refusals import refuse
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Refusal

LEAST_TOLD_SECONDS = 0.05
"""The shortest time, in seconds, that a refusal's message mentions; a shorter time would be printed as 0.0 s."""

DECODE_SECONDS = 20.0
"""Assumed duration of a decode, in seconds, where no forecast has measured it."""


class Gate(Protocol):
    """An early rejection mode."""

    @property
    def forecast(self) -> DecodeForecast | None:
        """The forecast that the scheduler must keep up to date for this gate; None if the gate uses no forecast."""

    @property
    def weighs_decode(self) -> bool:
        """Whether the gate needs measured durations of decode steps."""

    def at_arrival(
        self, request: RoutingRequest, ttft_seconds: float, view: PoolView, now: float, share: float = 1.0, *, pool: PoolView | None = None
    ) -> Refusal | None:
        """Return a refusal of a request that arrives, or None to admit the request.

        `ttft_seconds` is the TTFT predicted on the chosen instance. If this TTFT meets the SLO, the other instances are
        not examined. `share` (0-1] is the part of the limits that the request's priority class may use. `view` has the
        instances that may serve the request. `pool` has all instances of the pool; None if these are the instances of
        `view`.
        """

    def decoding(
        self, request: RoutingRequest, ttft_seconds: float, view: PoolView, now: float, share: float = 1.0, *, pool: PoolView | None = None
    ) -> Refusal | None:
        """Return a refusal if the decode load does not allow the request, by the same rules as `at_arrival`; None if it
        allows the request. TTFTs are not checked.
        """

    def after_prefill(self, request: RoutingRequest, decodes_on: InstanceLoad, view: PoolView, now: float) -> Refusal | None:
        """Return a refusal if the load of the request's decode instance has become too high; None otherwise. The
        request's prefill is complete.
        """


class DisabledGate:
    """The gate that refuses nothing."""

    forecast: DecodeForecast | None = None
    weighs_decode = False

    def at_arrival(
        self, request: RoutingRequest, ttft_seconds: float, view: PoolView, now: float, share: float = 1.0, *, pool: PoolView | None = None
    ) -> Refusal | None:
        return None

    def decoding(
        self, request: RoutingRequest, ttft_seconds: float, view: PoolView, now: float, share: float = 1.0, *, pool: PoolView | None = None
    ) -> Refusal | None:
        return None

    def after_prefill(self, request: RoutingRequest, decodes_on: InstanceLoad, view: PoolView, now: float) -> Refusal | None:
        return None


class LoadGate(DisabledGate):
    """Mooncake's early rejection: refuses by the present prefill and decode loads."""

    weighs_decode = True

    def at_arrival(
        self, request: RoutingRequest, ttft_seconds: float, view: PoolView, now: float, share: float = 1.0, *, pool: PoolView | None = None
    ) -> Refusal | None:
        return late_first_token(request, ttft_seconds, view, share) or self.decoding(request, ttft_seconds, view, now, share)

    def decoding(
        self, request: RoutingRequest, ttft_seconds: float, view: PoolView, now: float, share: float = 1.0, *, pool: PoolView | None = None
    ) -> Refusal | None:
        if someone_idles(view):
            return None
        return crowded_decode(request, min(decode_loads(view), default=0.0), view, share=share)


class PredictedGate(DisabledGate):
    """Mooncake's early rejection with prediction: refuses by the decode load that is predicted for the time at which
    the request would begin to decode.
    """

    weighs_decode = True

    def __init__(self) -> None:
        self.forecast: DecodeForecast | None = DecodeForecast()

    def at_arrival(
        self, request: RoutingRequest, ttft_seconds: float, view: PoolView, now: float, share: float = 1.0, *, pool: PoolView | None = None
    ) -> Refusal | None:
        late = late_first_token(request, ttft_seconds, view, share)
        return late or self.decoding(request, ttft_seconds, view, now, share, pool=pool)

    def decoding(
        self, request: RoutingRequest, ttft_seconds: float, view: PoolView, now: float, share: float = 1.0, *, pool: PoolView | None = None
    ) -> Refusal | None:
        if someone_idles(view):
            return None
        assert self.forecast is not None
        load = self.forecast.load_at(now + ttft_seconds, now, pool or view)  # it knows of the pool's decodes, not where each is
        return crowded_decode(request, load, view, self.forecast.decode_seconds, share=share)


class AfterPrefillGate(DisabledGate):
    """Mooncake's baseline: checks the decode load only after the request's prefill."""

    weighs_decode = True

    def at_arrival(
        self, request: RoutingRequest, ttft_seconds: float, view: PoolView, now: float, share: float = 1.0, *, pool: PoolView | None = None
    ) -> Refusal | None:
        return late_first_token(request, ttft_seconds, view, share)

    def after_prefill(self, request: RoutingRequest, decodes_on: InstanceLoad, view: PoolView, now: float) -> Refusal | None:
        if not decodes_on.decoding or someone_idles(view):
            return None
        return crowded_decode(request, decode_load(decodes_on, view), view, reason=RejectionReason.AFTER_PREFILL)


_GATES: dict[str, Callable[[], Gate]] = {
    "Disabled": DisabledGate,
    "Load": LoadGate,
    "Predicted": PredictedGate,
    "AfterPrefill": AfterPrefillGate,
}


def build_gate(mode: str) -> Gate:
    """Return the gate of an early rejection mode. Raises UnknownName for an unknown mode."""
    if mode not in _GATES:
        raise UnknownName("early rejection mode", mode, tuple(_GATES))
    return _GATES[mode]()


def late_first_token(request: RoutingRequest, ttft_seconds: float, view: PoolView, share: float = 1.0) -> Refusal | None:
    """Return a refusal if the predicted TTFT exceeds the limit even on the best candidate, else None.

    With a `share` below 1, the limit is multiplied by this share of the request's priority class. The full limit
    applies while an instance has nothing to prefill, because the TTFT is then due to the prompt's length, not to the
    load. Nothing is refused until the instances' speed has been measured, because a declared speed may be wrong by any
    factor.
    """
    limit = view.table.early_rejection.headroom * view.table.slo.ttft_seconds
    if view.tokens_within(limit) == inf:
        return None
    if isnan(ttft_seconds):  # a policy may be somebody's own
        ttft_seconds = inf
    if ttft_seconds <= share * limit:
        return None
    if share < 1.0 and all(load.pending_prefill_tokens for load in view.candidates()):
        limit *= share
    if ttft_seconds <= limit:
        return None
    best = min(ttft_seconds, best_ttft_seconds(request, view))
    if best <= limit:
        return None
    return refuse(
        request,
        RejectionReason.PREDICTED_TTFT,
        retry_after_seconds=min(best, _seconds_to_room(request, limit, view)),
        message=f"predicted time to first token {best:.1f} s exceeds {limit:.1f} s on every instance of pool {view.table.pool}"
        + ("" if request.within is None else " that may serve it")
        + _of_class(request, share)
        + _not_counted(request, view),
        predicted_ttft_seconds=best,
    )


def someone_idles(view: PoolView) -> bool:
    """Return whether an instance that may decode has nothing to do. An idle instance does not count as overloaded, even
    if a long step time is predicted for it. Without this rule, a wrong estimate could refuse every request, so that no
    measurement would ever correct the estimate. A TPOT target that no engine can meet would stop the pool.
    """
    return any(load.is_idle for load in view.decode_candidates())


def crowded_decode(
    request: RoutingRequest,
    load: float,
    view: PoolView,
    decode_seconds: float = DECODE_SECONDS,
    reason: RejectionReason = RejectionReason.DECODE_OVERLOADED,
    share: float = 1.0,
) -> Refusal | None:
    """Return a refusal if the decode load exceeds the limit, else None.

    Retry-After is the estimated time until enough decodes have ended for the load to fall below the limit.
    """
    limit = share * view.table.early_rejection.headroom
    if load <= limit:
        return None
    step = load * view.table.slo.tpot_seconds
    return refuse(
        request,
        reason,
        retry_after_seconds=decode_seconds * (1 - limit / load),
        message=f"decoding at {step:.3f} s per token exceeds {limit * view.table.slo.tpot_seconds:.3f} s in pool {view.table.pool}"
        + _of_class(request, share),
    )


def no_room_to_decode(request: RoutingRequest, view: PoolView, decode_seconds: float = DECODE_SECONDS) -> Refusal:
    """Return a refusal whose message says that no decode instance has room for the request's context."""
    return refuse(
        request,
        RejectionReason.DECODE_OVERLOADED,
        retry_after_seconds=decode_seconds / 2,
        message=f"no decode instance of pool {view.table.pool} has room for {request.prompt_tokens} tokens",
    )


def _seconds_to_room(request: RoutingRequest, limit: float, view: PoolView) -> float:
    """Return the estimated seconds until an instance could meet the TTFT limit for this request; infinite without
    candidates. If the prefill alone exceeds the limit on an instance, the instance is assumed to have room once it is
    idle. An instance with running decodes is assumed to need `DECODE_SECONDS` to finish the decodes.
    """
    hits = view.hit_vector(request)
    alone, ttfts = view.prefill_vector(request, hits), view.ttft_vector(request, hits)
    answers = np.array([DECODE_SECONDS if load.decoding else 0.0 for load in view.candidates()])
    return float(np.where(alone <= limit, ttfts - limit, ttfts - alone + answers).min(initial=inf))


def _not_counted(request: RoutingRequest, view: PoolView) -> str:
    """Return a clause for a refusal's message with the seconds of prefills that wait now but would be sent after the
    request. The predicted TTFT does not include these seconds. Empty if there are hardly any such prefills.
    """
    overtaken = view.overtaken_seconds(request)
    most = 0.0 if overtaken is None else float(overtaken.max(initial=0.0))
    return (
        f"; not counted: up to {most:.1f} s of prefills that wait now but would be sent after this request"
        if most >= LEAST_TOLD_SECONDS
        else ""
    )


def _of_class(request: RoutingRequest, share: float) -> str:
    return "" if share == 1.0 else f"; this limit is the share of priority class {request.priority_class}"
