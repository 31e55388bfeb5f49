"""Functions that policies share: they score a candidate, record a choice, and order the other candidates by
preference.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from fairlead.reports.decisions import CandidateScore, Weighing
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import FloatVector, IntVector
from fairlead.routing.contracts.weighing import ONLY_INSTANCE

FALLBACKS = 3
"""Maximum number of fallback instances that a decision names for retries."""

FEW = 32
"""Number of instances up to which ties among fallbacks are broken by load."""


def score(
    request: RoutingRequest,
    load: InstanceLoad,
    hit_tokens: int,
    speed: float,
    total: float | None = None,
    *,
    ttft_seconds: float | None = None,
    terms: dict[str, float] | None = None,
) -> CandidateScore:
    """Return a candidate's score with the fields that all policies share. `speed` is prefill tokens per second, `total`
    the value that the policy compares, and `ttft_seconds` the policy's own prediction, if it made one.
    """
    miss = max(1, request.prompt_tokens - hit_tokens)
    return CandidateScore(
        instance=load.entry.id,
        hit_tokens=hit_tokens,
        miss_tokens=miss,
        pending_tokens=load.pending_prefill_tokens,
        predicted_ttft_seconds=(load.pending_prefill_tokens + miss) / speed if ttft_seconds is None else ttft_seconds,
        total=total,
        terms=terms or {},
    )


def weighed(
    request: RoutingRequest,
    view: PoolView,
    rule: str,
    instances: Iterable[str],
    total: Callable[[InstanceLoad], float | None],
    terms: Callable[[InstanceLoad], dict[str, float]] | None = None,
    *,
    limits: dict[str, float] | None = None,
    passed_over: str | None = None,
) -> Callable[[], Weighing]:
    """Return a function that makes the record of a choice among the named instances. The names are in order of
    preference; instances that the view does not know are left out.
    """

    def weigh() -> Weighing:
        speed = view.prefill_speed
        scores: list[CandidateScore] = []
        for instance in dict.fromkeys(instances):
            load = view.load(instance)
            if load is not None:
                hit, ttft = view.hit_tokens(request, instance), view.predicted_ttft_seconds(request, instance)
                named = terms(load) if terms is not None else {}
                if view.is_tiered:
                    named |= view.tier_terms(request, instance)
                scores.append(score(request, load, hit, speed, total(load), ttft_seconds=ttft, terms=named))
        return weighing(view, rule, scores, limits, passed_over)

    return weigh


def weighing(
    view: PoolView,
    rule: str,
    scores: Sequence[CandidateScore],
    limits: dict[str, float] | None = None,
    passed_over: str | None = None,
    considered: int | None = None,
) -> Weighing:
    """Return a record of these scores. With a single candidate, the rule is "only instance". `considered` is the number
    of instances considered; None = the whole pool.
    """
    serving = len(view.candidates())
    return Weighing(
        rule=rule if serving > 1 else ONLY_INSTANCE,
        candidates=tuple(scores),
        considered=serving if considered is None else considered,
        passed_over=passed_over,
        limits=limits or {},
    )


def virtual_load(one: CandidateScore) -> int:
    """Return the uncached prompt tokens that the instance would have to compute, this request's included."""
    return one.pending_tokens + one.miss_tokens


def nothing(load: InstanceLoad) -> None:
    """Return None: the `total` of policies that compare no total."""


def less_loaded(load: InstanceLoad) -> tuple[int, int, str]:
    """Return a sort key, least load first: pending uncached prompt tokens, then context tokens of running decodes, then
    id.
    """
    return (load.pending_prefill_tokens, load.decode_tokens, load.entry.id)


def least_pending(candidates: Sequence[InstanceLoad], excluded: Sequence[str] = (), count: int = FALLBACKS) -> tuple[str, ...]:
    """Return the ids of up to `count` candidates with the least pending prefill tokens, without the candidates in
    `excluded`. Ties are broken by running decodes, then by id. In pools of more than `FEW` instances, ties are broken
    only by id, because this takes a third of the time.
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
    hits: IntVector | list[int],
    totals: IntVector | FloatVector | list[float],
    reason: DecisionReason,
    rule: str,
    *,
    terms: Callable[[int], dict[str, float]] | None = None,
    limits: dict[str, float] | None = None,
    passed_over: int | None = None,
    ttfts: Callable[[int], float] | None = None,
    decode: str | None = None,
    transfer_from: str | None = None,
    ttft_seconds: float | None = None,
    home: str | None = None,
) -> Decision:
    """Return the decision for the first instance of `order` (indexes into the candidates, best first). The next
    instances of `order` are the fallbacks.

    The decision records the compared `totals`, the `terms` of each index, `limits`, the `home` of the request's
    session, and the policy's own TTFT predictions if it made any (`ttfts`). `passed_over` is the index of an instance
    that was preferred but not chosen. Other arguments are as in `Decision`.
    """

    def weigh() -> Weighing:
        return weighed_in_order(
            request, view, order, hits, totals, rule, terms=terms, limits=limits, passed_over=passed_over, ttfts=ttfts, home=home
        )

    return decision_in_order(view.candidates(), order, reason, weigh, decode=decode, transfer_from=transfer_from, ttft_seconds=ttft_seconds)


def decision_in_order(
    candidates: Sequence[InstanceLoad],
    order: Sequence[int],
    reason: DecisionReason,
    weigh: Callable[[], Weighing],
    *,
    decode: str | None = None,
    transfer_from: str | None = None,
    ttft_seconds: float | None = None,
) -> Decision:
    """Return the decision for the first instance of `order`. The next instances of `order` are its fallbacks."""
    chosen = [candidates[index].entry.id for index in order[: FALLBACKS + 1]]
    return Decision(  # by position, see fairlead.values
        chosen[0],
        reason if len(candidates) > 1 else DecisionReason.ONLY_INSTANCE,
        weigh,
        tuple(chosen[1:]),
        None,  # alternate
        None,  # session
        None,  # room_tokens
        (),  # overloaded
        decode,
        transfer_from,
        ttft_seconds,
    )


def weighed_in_order(
    request: RoutingRequest,
    view: PoolView,
    order: Sequence[int],
    hits: IntVector | list[int],
    totals: IntVector | FloatVector | list[float],
    rule: str,
    *,
    terms: Callable[[int], dict[str, float]] | None,
    limits: dict[str, float] | None,
    passed_over: int | None,
    ttfts: Callable[[int], float] | None,
    home: str | None,
) -> Weighing:
    """Return the record of a decision made by `ordered_decision`. The result is valid only if the view has not changed
    after the decision.
    """
    candidates, speed = view.candidates(), view.prefill_speed
    compared = [*order[: FALLBACKS + 1]]
    if passed_over is not None and passed_over not in compared:
        compared.append(passed_over)
    if home is not None and home != candidates[order[0]].entry.id:
        compared += [index for index, load in enumerate(candidates) if load.entry.id == home and index not in compared]
    scores = [
        score(
            request,
            candidates[index],
            int(hits[index]),
            speed,
            float(totals[index]),
            ttft_seconds=view.predicted_ttft_seconds(request, candidates[index].entry.id) if ttfts is None else ttfts(index),
            terms=None if terms is None else terms(index),
        )
        for index in compared
    ]
    if view.is_tiered:
        scores = [replace(one, terms=one.terms | view.tier_terms(request, one.instance)) for one in scores]
    return weighing(view, rule, scores, limits, None if passed_over is None else candidates[passed_over].entry.id)
