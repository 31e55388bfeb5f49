"""A scaling recommendation as it is stored: in the pool's status, as a row of history and in the public API.

Each recommendation is recorded once. Its id is derived from the memory from which it was made, so a round repeated
after a crash makes the same row, which is stored once. The reason is a sentence with the figures stored beside it.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from xxhash import xxh3_128_hexdigest

from fairlead.capabilities import source_words
from fairlead.instances import Role
from fairlead.percentages import percentage
from fairlead.scaling.memory import ScalingMemory
from fairlead.scaling.recommendations import Cause, Controller, Hold, Imbalance, Need, Recommendation, Verdict
from fairlead.scaling.signals import PoolDemand, RoleSignals

Time = TypeVar("Time")
"""Unix seconds in the operator's report, datetime in the public API."""

_HOLDS = {
    Hold.STABILIZING: "another number was recommended within the stabilization window",
    Hold.COOLDOWN: "the cooldown since the last step is not over",
    Hold.STEP_LIMIT: "this period's steps are used up",
    Hold.AT_BOUND: "the bounds are {lower} to {upper}",
    Hold.SLO_MISSED: "requests miss the SLO, so no instance is removed",
    Hold.NOT_WORTH_IT: "the pool would not do better after the move",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision(Generic[Time]):
    """One recommendation and its outcome.

    Subclasses declare `at` again with its type. `replicas` is the number applied or, in mode Advise, the number that
    would be applied. `lower` and `upper` were the bounds; `lower_by` and `upper_by` name the schedules that set the
    bounds, None = the role itself. `mode` is the mode of `spec.scaling` or `spec.ratio`. `signals` are the signals of
    the role or, for the ratio, of both roles; for scaling to and from zero, `demand` is set instead.
    """

    id: str
    at: Time
    controller: Controller
    role: Role
    mode: str
    current: int
    recommended: int
    replicas: int
    verdict: Verdict
    hold: Hold | None = None
    cause: Cause
    lower: int
    upper: int
    lower_by: str | None = None
    upper_by: str | None = None
    reason: str
    need: Need | None = None
    imbalance: Imbalance | None = None
    signals: tuple[RoleSignals, ...] = ()
    demand: PoolDemand | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecisionRecord(ScalingDecision[float]):
    """A decision as the operator reports it, with times in Unix seconds."""

    at: float


def record(found: Recommendation, memory: ScalingMemory, uid: str, mode: str, now: float) -> ScalingDecisionRecord:
    """Return the record of a recommendation made at `now` for the pool with this `uid`; `memory` is the memory before
    the round.
    """
    bounds = found.bounds
    return ScalingDecisionRecord(
        id=xxh3_128_hexdigest(f"{uid}|{memory!r}|{found.line}".encode()),
        at=now,
        controller=found.controller,
        role=found.role,
        mode=mode,
        current=found.current,
        recommended=found.recommended,
        replicas=found.replicas,
        verdict=found.verdict,
        hold=found.hold,
        cause=found.cause,
        lower=bounds.lower,
        upper=bounds.upper,
        lower_by=bounds.lower_by,
        upper_by=bounds.upper_by,
        reason=sentence(found),
        need=found.need,
        imbalance=found.imbalance,
        signals=found.signals,
        demand=found.demand,
    )


def sentence(found: Recommendation) -> str:
    """Return the reason for a recommendation as one sentence. Example: `5.4 instances are needed to prefill 8000 prompt
    tokens/s, 25% of them cached; only 4 instead of 6: this period's steps are used up`.
    """
    parts = [_grounds(found)]
    if found.recommended == found.current:
        parts.append(f"the present {found.current} are recommended again")
    if found.hold is not None:
        held = "nothing changes" if found.replicas == found.current else f"only {found.replicas} instead of {found.recommended}"
        parts.append(f"{held}: {_HOLDS[found.hold].format(lower=found.bounds.lower, upper=found.bounds.upper)}")
    if found.verdict is Verdict.ADVISED:
        parts.append("advised only")
    return "; ".join(parts)


def _grounds(found: Recommendation) -> str:
    if found.imbalance is not None:
        seen = found.imbalance
        if found.recommended == found.current:
            return f"prefill load {seen.prefill_load:.2f} and decode load {seen.decode_load:.2f} no longer call for one more {found.role} instance"
        move = f"one {seen.donor} instance should become {found.role}, for {seen.comparisons} comparisons in a row"
        if found.cause is Cause.WORK_EXCEEDS:
            served = f"{percentage(seen.servable_after or 0)} instead of {percentage(seen.servable or 0)} of the requests could be served"
            return f"more work arrives than the instances can do, and by a model {served} after a move: {move}"
        return f"prefill load {seen.prefill_load:.2f} and decode load {seen.decode_load:.2f} are out of balance: {move}"
    if found.demand is not None:
        seen_by_routers = found.demand
        if found.cause is Cause.IDLE:
            return f"no router has had a request for {seen_by_routers.idle_seconds or 0:.0f} s"
        held = f"{seen_by_routers.held_requests} requests with {seen_by_routers.held_prompt_tokens} prompt tokens wait for an instance"
        if found.expected_prompt_tokens is not None:
            start = f"once one has started, after {found.start.value or 0:.0f} s ({source_words(found.start, 'start')})"
            held = f"{held}, and {found.expected_prompt_tokens} {start}"
        if found.speed.value is None or found.role is Role.DECODE:
            return held
        return f"{held}, which prefills {found.speed.value:.0f} tokens/s ({source_words(found.speed, 'prefill')})"
    need, signals = found.need, found.signals[0]
    instances = "?" if need is None or need.instances is None else f"{need.instances:.1f}"
    cached = "" if signals.cached_share is None else f", {percentage(signals.cached_share)} of them cached"
    prompts = f"{signals.prompt_tokens_per_second:.0f} prompt tokens/s{cached}"
    match found.cause:
        case Cause.QUEUE:
            return (
                f"{instances} instances are needed to prefill {prompts}, and to work off a queue of "
                f"{signals.prefill_load or 0:.2f} × slo.ttft"
            )
        case Cause.OUTPUTS:
            return f"{instances} instances are needed to decode {signals.output_tokens_per_second:.0f} output tokens/s"
        case Cause.SLOW_OUTPUTS:
            return f"{instances} instances are needed, because output tokens take {signals.decode_load or 0:.2f} × slo.tpot"
        case _:
            return f"{instances} instances are needed to prefill {prompts}"
