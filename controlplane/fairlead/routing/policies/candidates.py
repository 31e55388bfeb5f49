"""What policies share: scoring a candidate, and orders of preference among the rest."""

from collections.abc import Iterable, Sequence

from fairlead.reports import BindingReason, CandidateScore
from fairlead.routing.protocols import Decision, DecisionReason, InstanceLoad, PoolView, RoutingRequest
from fairlead.routing.vectors import FloatVector, IntVector

FALLBACKS = 3
"""How many other instances a decision names for retries."""

FEW = 32
"""Up to so many instances, ties among fallbacks are worth breaking by load."""


def score(request: RoutingRequest, load: InstanceLoad, hit_tokens: int, speed: float, total: float | None = None) -> CandidateScore:
    """The candidate's terms. `speed` is prefill tokens per second; `total` defaults to virtual load: pending + miss, in tokens."""
    miss = max(1, request.prompt_tokens - hit_tokens)
    virtual = load.pending_prefill_tokens + miss
    return CandidateScore(
        instance=load.entry.id,
        hit_tokens=hit_tokens,
        miss_tokens=miss,
        pending_tokens=load.pending_prefill_tokens,
        predicted_ttft_seconds=virtual / speed,
        total=float(virtual) if total is None else total,
    )


def score_all(request: RoutingRequest, view: PoolView, instances: Iterable[str]) -> tuple[CandidateScore, ...]:
    """Scores of the named instances that are known to the view, in the order given."""
    speed = view.table.engine.prefill_tokens_per_second
    scores: list[CandidateScore] = []
    for instance in instances:
        load = view.load(instance)
        if load is not None:
            scores.append(score(request, load, view.hit_tokens(request, instance), speed))
    return tuple(scores)


def less_loaded(load: InstanceLoad) -> tuple[int, int, str]:
    """Sort key: pending uncached prompt tokens, then tokens held by running decodes, then id."""
    return (load.pending_prefill_tokens, load.decode_tokens, load.entry.id)


def least_pending(candidates: Sequence[InstanceLoad], excluded: Sequence[str] = (), count: int = FALLBACKS) -> tuple[str, ...]:
    """Ids of up to `count` candidates with the least pending prefill tokens, without the excluded.

    Ties go by running decodes, then id; in pools of more than `FEW` by order of id alone, which costs a third.
    """
    if len(candidates) <= FEW:
        rest = [load for load in candidates if load.entry.id not in excluded]
        return tuple(load.entry.id for load in sorted(rest, key=less_loaded)[:count])
    pending = [load.pending_prefill_tokens for load in candidates]
    never = max(pending) + 1
    found: list[str] = []
    for _ in range(count + len(excluded)):
        index = pending.index(min(pending))
        pending[index] = never
        instance = candidates[index].entry.id
        if instance not in excluded:
            found.append(instance)
            if len(found) == count:
                break
    return tuple(found)


def ordered_decision(
    request: RoutingRequest,
    view: PoolView,
    order: Sequence[int],
    hits: IntVector,
    totals: IntVector | FloatVector,
    reason: DecisionReason,
    bind: BindingReason | None = None,
    *,
    decode: str | None = None,
    transfer_from: str | None = None,
    ttft_seconds: float | None = None,
) -> Decision:
    """The decision for the first of `order` (indexes into the candidates, best first), the next ones its fallbacks; `totals` are what was compared.

    The rest as in `Decision`.
    """
    candidates = view.candidates()
    speed = view.table.engine.prefill_tokens_per_second
    chosen = [candidates[index].entry.id for index in order[: FALLBACKS + 1]]
    return Decision(
        instance=chosen[0],
        reason=reason if len(candidates) > 1 else DecisionReason.ONLY_INSTANCE,
        fallbacks=tuple(chosen[1:]),
        candidates=tuple(score(request, candidates[index], int(hits[index]), speed, float(totals[index])) for index in order[:2]),
        bind=bind,
        decode=decode,
        transfer_from=transfer_from,
        ttft_seconds=ttft_seconds,
    )
