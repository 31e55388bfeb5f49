"""DualMap: two candidates per prefix from a dual hash ring. The candidate with the longer cached prefix is chosen
unless it is predicted to miss the SLO. If both candidates are predicted to miss the SLO, queued requests migrate within
the pair.

The number of candidates is a parameter, so that the paper's choice of two can be compared with other numbers. The same
rules apply to more than two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from fairlead.reports.bindings import Binding
from fairlead.reports.decisions import CandidateScore, Weighing
from fairlead.reports.moves import MoveCause
from fairlead.routing.choosing.batch_migration import MigrationRules, plan_moves
from fairlead.routing.choosing.binding_reasons import RingAge
from fairlead.routing.choosing.candidates import FALLBACKS, least_pending, less_loaded, score, virtual_load, weighing
from fairlead.routing.choosing.coded_migration import CodedRules, coded_moves
from fairlead.routing.choosing.key_parameters import PRESETS, KeyParameters
from fairlead.routing.choosing.move_causes import by_cost, by_hits, endangered, listed
from fairlead.routing.choosing.prefix_hotness import PrefixHotness
from fairlead.routing.choosing.terms import DECODE_TOKENS
from fairlead.routing.contracts.catalogues import PolicyEntry, RingUse
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import PoolView, QueuedMove
from fairlead.routing.contracts.requests import QueuedRequest, RoutingRequest
from fairlead.routing.contracts.weighing import PASSED_OVER, TOTAL, Comparison, DecisionRule, Holds, Limit, PolicyTerms, Term, Unit
from fairlead.routing.knowledge.rings import CandidateRings
from fairlead.schemas.shapes import number, text, truth, whole
from fairlead.tables import RoutingTable

PAPER_BOTTLENECK_SECONDS: Final = 3.0
CODE_BUSY_SECONDS: Final = 2.0
NEVER_SECONDS: Final = 1e9
ANY_GAIN_SECONDS: Final = -3600.0
"""The least gain (seconds) of a move for presets that reproduce the published behaviour. The value is so far below 0
that a session follows its key even if its TTFT becomes longer.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DualMapParameters(KeyParameters):
    """Parameters of `dualmap`."""

    preset: str = text(
        "Source of the parameters that are not given: the variant that measured best (dualmap), the paper "
        "(dualmap-paper), or its published code (dualmap-code).",
        "dualmap",
        enum=("dualmap", *PRESETS),
    )
    slo_fraction: float | None = number(
        "An instance is overloaded when its pending tokens and this request's uncached tokens take longer than this part of the TTFT SLO; "
        "default: 1.0 (dualmap-code: 0.5).",
        None,
        minimum=0.01,
        maximum=100.0,
    )
    candidates: int = whole(
        "Number of candidates per key, each from a ring of its own; with 1 there is neither choice nor migration.", 2, minimum=1, maximum=4
    )
    second_choice: str = text(
        "Which candidate to take if a ring names an instance that was already named: `distinct`: the next "
        "other instance clockwise; `paper`: the next instance by index.",
        "distinct",
        enum=("distinct", "paper"),
    )
    rebalance: bool = truth("Migrate queued requests within their pair when both candidates are overloaded.", True)
    sweep: bool | None = truth(
        "Also check all queues four times a second, not only the candidates' queues when both are overloaded; "
        "default: true (dualmap-paper: false).",
        None,
    )
    bottleneck_seconds: float | None = number(
        "When rebalancing, an instance that has work but no first token for longer than this counts as held "
        "up by decodes; default: never "
        "(dualmap-paper: 3.0).",
        None,
        minimum=0.1,
    )
    max_examined: int = whole(
        "Maximum number of queued requests that a rebalancing run examines per instance.", 256, minimum=1, maximum=10_000
    )

    @property
    def overload_fraction(self) -> float:
        """The value of the parameter `slo_fraction`; if it is not set, the preset's value."""
        if self.slo_fraction is not None:
            return self.slo_fraction
        return 0.5 if self.preset == "dualmap-code" else 1.0

    @property
    def is_coded(self) -> bool:
        """Whether requests are queued, sent and moved as in DualMap's published code."""
        return self.preset == "dualmap-code"

    @property
    def sweeps(self) -> bool:
        """The value of the parameter `sweep`; if it is not set, the preset's value."""
        return self.preset != "dualmap-paper" if self.sweep is None else self.sweep

    @property
    def held_up_seconds(self) -> float:
        """The value of the parameter `bottleneck_seconds`; if it is not set, the preset's value. Infinite = prefills
        never count as delayed by decodes.
        """
        if self.bottleneck_seconds is not None:
            return self.bottleneck_seconds
        return PAPER_BOTTLENECK_SECONDS if self.preset == "dualmap-paper" else inf


class DualMap:
    """The policy `dualmap`. Bindings only record where a session's KV cache is; they do not influence choices."""

    name = "dualmap"
    binds = True

    def __init__(self, parameters: DualMapParameters) -> None:
        self._parameters = parameters
        self.sweeps = parameters.sweeps
        self._hotness = PrefixHotness(parameters.hotness())
        self._rings = CandidateRings.of((), parameters.candidates)
        self._ring_age = RingAge()

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        if self._ring_age.is_new:
            self._ring_age.settle(now)
        key = self._hotness.observe(request.blocks, request.first_bytes_hash, len(self._rings.instances))
        named = self._rings.candidates(key)
        healthy: list[InstanceLoad] = []
        for instance in named:
            load = view.load(instance)
            if load is not None and load.is_candidate(now):
                healthy.append(load)
        if len(healthy) == 2:
            return self._choose_of_two(request, healthy[0], healthy[1], named, view)
        if len(healthy) > 2:
            return self._choose_of_many(request, healthy, named, view)
        if healthy:
            chosen, reason, rule = healthy[0], DecisionReason.FALLBACK, "only-named"
            if len(named) == 1:
                reason = DecisionReason.PREFIX_AFFINITY if len(self._rings.instances) > 1 else DecisionReason.ONLY_INSTANCE
        else:
            chosen, reason, rule = min(view.candidates(), key=less_loaded), DecisionReason.FALLBACK, "none-named"
        fallbacks = least_pending(view.candidates(), (chosen.entry.id,))

        def weigh() -> Weighing:
            compared = [chosen.entry.id] if healthy else [chosen.entry.id, *fallbacks]
            speed = view.prefill_speed
            loads = [load for load in map(view.load, compared) if load is not None]
            scores = [score(request, load, view.hit_tokens(request, load.entry.id), speed) for load in loads]
            return self._weighing(request, view, rule, scores, considered=1 if healthy else None)

        return Decision(
            instance=chosen.entry.id,
            reason=reason,
            fallbacks=fallbacks,
            weigh=weigh,
        )

    def placements(self, request: RoutingRequest) -> tuple[str, ...]:
        """Return the request's candidates. Empty (= any instance) under the rules of the published code, because these
        rules also move requests to the candidates' neighbours.
        """
        return () if self._parameters.is_coded else self._named(request)

    def may_dispatch(self, load: InstanceLoad, view: PoolView, now: float) -> bool:
        """Return whether another prefill may be sent to an instance that has prefills in flight.

        Under the rules of the published code, this requires that the tokens stay within the threshold and that the
        instance's last first token is recent.
        """
        if not self._parameters.is_coded:
            return True
        since = load.prefilling_since if load.last_first_token_at is None else load.last_first_token_at
        recent = since is None or now - since < CODE_BUSY_SECONDS
        return recent and load.dispatched_prefill_tokens < self._threshold_tokens(view)

    def _named(self, request: RoutingRequest) -> tuple[str, ...]:
        return self._rings.candidates(self._hotness.key(request.blocks, request.first_bytes_hash))

    def _threshold_tokens(self, view: PoolView) -> float:
        """Number of uncached tokens above which an instance is overloaded; infinite until a speed has been observed."""
        return view.tokens_within(self._parameters.overload_fraction * view.table.slo.ttft_seconds)

    def _to_relieve(self, named: tuple[str, ...], *, all_overloaded: bool) -> tuple[str, ...]:
        """Return the instances whose queues are checked for moves after a choice: under the rules of the paper, the
        instances `named` if all of them are overloaded; under the rules of the published code, all instances. Empty if
        the policy does not rebalance.
        """
        if not self._parameters.rebalance:
            return ()
        return self._rings.instances if self._parameters.is_coded else named if all_overloaded else ()

    def rebalance(
        self, overloaded: Sequence[str], queues: Mapping[str, Sequence[QueuedRequest]], view: PoolView, now: float
    ) -> Sequence[QueuedMove]:
        if not self._parameters.rebalance or self._parameters.candidates == 1:
            return ()
        if view.tokens_within(view.table.slo.ttft_seconds) == inf:
            return ()
        if self._parameters.is_coded:
            found = CodedRules(threshold_tokens=self._threshold_tokens(view), max_examined=self._parameters.max_examined)
            return coded_moves(queues, self._named, view, now, found)
        rules = MigrationRules(
            slo_seconds=view.table.slo.ttft_seconds,
            bottleneck_seconds=self._parameters.held_up_seconds,
            max_examined=self._parameters.max_examined,
        )
        return plan_moves(overloaded, queues, view, now, rules)

    def table_changed(self, table: RoutingTable) -> None:
        """Rebuild the rings from the accepting instances."""
        self._rings = CandidateRings.of(table.instances, self._parameters.candidates, self._parameters.second_choice)
        self._ring_age.rebuilt(table.instances)

    def _choose_of_two(
        self, request: RoutingRequest, first: InstanceLoad, second: InstanceLoad, named: tuple[str, ...], view: PoolView
    ) -> Decision:
        speed = view.prefill_speed
        threshold = self._threshold_tokens(view)
        one = score(request, first, view.hit_tokens(request, first.entry.id), speed)
        two = score(request, second, view.hit_tokens(request, second.entry.id), speed)
        if one.hit_tokens == two.hit_tokens:
            chosen, other = (one, two) if less_loaded(first) <= less_loaded(second) else (two, one)
            reason = DecisionReason.PREFIX_EQUAL if one.hit_tokens else DecisionReason.LEAST_LOADED
        else:
            chosen, other = (one, two) if one.hit_tokens > two.hit_tokens else (two, one)
            reason = DecisionReason.PREFIX_AFFINITY
            if virtual_load(chosen) > threshold and virtual_load(other) < virtual_load(chosen):
                chosen, other = other, chosen
                reason = DecisionReason.SLO_OVERLOADED
        guarded = reason is DecisionReason.SLO_OVERLOADED
        both_overloaded = virtual_load(one) > threshold and virtual_load(two) > threshold
        return Decision(
            instance=chosen.instance,
            reason=reason,
            fallbacks=self._fallbacks(chosen.instance, other.instance, view),
            alternate=other.instance,
            weigh=lambda: self._weighing(
                request,
                view,
                "slo-guard" if guarded else "longest-hit",
                (chosen, other),
                _limits(threshold),
                other.instance if guarded else None,
                considered=2,
            ),
            overloaded=self._to_relieve(named, all_overloaded=both_overloaded),
        )

    def _choose_of_many(self, request: RoutingRequest, healthy: Sequence[InstanceLoad], named: tuple[str, ...], view: PoolView) -> Decision:
        """Return the choice among any number of candidates, by the same rules as `_choose_of_two`. The largest hit
        wins, then the least load. If that candidate is overloaded, the smallest virtual load wins.
        """
        speed = view.prefill_speed
        threshold = self._threshold_tokens(view)
        ranked = sorted(healthy, key=less_loaded)
        scores = [score(request, load, view.hit_tokens(request, load.entry.id), speed) for load in ranked]
        cached = max(scores, key=lambda one: one.hit_tokens)
        by_total = sorted(scores, key=virtual_load)
        chosen = cached
        if virtual_load(cached) > threshold and virtual_load(by_total[0]) < virtual_load(cached):
            chosen, reason = by_total[0], DecisionReason.SLO_OVERLOADED
        elif sum(one.hit_tokens == cached.hit_tokens for one in scores) == 1:
            reason = DecisionReason.PREFIX_AFFINITY
        else:
            reason = DecisionReason.PREFIX_EQUAL if cached.hit_tokens else DecisionReason.LEAST_LOADED
        guarded = reason is DecisionReason.SLO_OVERLOADED
        others = tuple(one for one in by_total if one is not chosen)
        return Decision(
            instance=chosen.instance,
            reason=reason,
            fallbacks=tuple(one.instance for one in others)[:FALLBACKS],
            alternate=others[0].instance,
            weigh=lambda: self._weighing(
                request,
                view,
                "slo-guard" if guarded else "longest-hit",
                (chosen, *others),
                _limits(threshold),
                cached.instance if guarded else None,
                considered=len(scores),
            ),
            overloaded=self._to_relieve(named, all_overloaded=virtual_load(by_total[0]) > threshold),
        )

    def _weighing(
        self,
        request: RoutingRequest,
        view: PoolView,
        rule: str,
        scores: Sequence[CandidateScore],
        limits: dict[str, float] | None = None,
        passed_over: str | None = None,
        *,
        considered: int | None = None,
    ) -> Weighing:
        complete: list[CandidateScore] = []
        for one in scores:
            load = view.load(one.instance)
            ttft = view.predicted_ttft_seconds(request, one.instance)
            terms = {"decode_tokens": float(load.decode_tokens if load is not None else 0)}
            complete.append(replace(one, predicted_ttft_seconds=ttft, total=float(virtual_load(one)), terms=terms))
        return weighing(view, rule, complete, limits, passed_over, considered)

    def _fallbacks(self, chosen: str, other: str, view: PoolView) -> tuple[str, ...]:
        """Return the fallbacks: the other instance of the pair and, in small pools, the least loaded other instances.
        In a large pool the least loaded instances are looked up only when they are needed, which is rare.
        """
        if len(view.candidates()) > FALLBACKS * 4:
            return (other,)
        return (other, *least_pending(view.candidates(), (chosen, other), FALLBACKS - 1))

    def cause_to_leave(self, request: RoutingRequest, home: Binding, weighed: Weighing, view: PoolView, now: float) -> MoveCause:
        """See `KeepsHomes.cause_to_leave`."""
        here, there = listed(weighed, home.instance), weighed.candidates[0]
        if here is None or weighed.rule not in _AMONG_NAMED:  # its key may have changed with this very request

            def is_other_key() -> bool:
                others = self._hotness.other_keys(request.blocks, request.first_bytes_hash)
                return any(home.instance in self._rings.candidates(key) for key in others)

            return MoveCause(trigger=self._ring_age.reason(home, is_other_key))
        limit = weighed.limits.get("overload_tokens", inf)
        if weighed.rule == "slo-guard" and virtual_load(here) > limit:
            return endangered(here, view.table.slo.ttft_seconds, float(virtual_load(here)), limit, Unit.TOKENS)
        return by_cost(here, there, Unit.TOKENS) if weighed.rule == "slo-guard" else by_hits(here, there)


def _limits(threshold: float) -> dict[str, float]:
    """Return the limits to record for an overload threshold; empty if the threshold is infinite."""
    return {"overload_tokens": threshold} if threshold < inf else {}


_AMONG_NAMED = frozenset({"slo-guard", "longest-hit"})
"""Rules that compare only the candidates that the rings give for a prefix."""

ENTRY = PolicyEntry(
    name=DualMap.name,
    intent=(
        "Two candidates per prefix; the one with the cache is chosen unless that endangers the SLO; queued "
        "requests migrate within their pair."
    ),
    build=lambda parameters, seed: DualMap(parameters),
    parameters=DualMapParameters,
    presets={
        "dualmap-paper": {"least_gain_seconds": ANY_GAIN_SECONDS},
        "dualmap-code": {
            "queue_discipline": "longest_hit",
            "queue_age_bound_seconds": NEVER_SECONDS,
            "least_gain_seconds": ANY_GAIN_SECONDS,
        },
    },
    ring=RingUse.EVERY_REQUEST,
    terms=PolicyTerms(
        total=Term(name=TOTAL, words="load with this request", unit=Unit.TOKENS),
        parts=("pending_tokens", "miss_tokens"),
        terms=(DECODE_TOKENS,),
        limits=(Limit(name="overload_tokens", words="load at which the TTFT target is endangered", unit=Unit.TOKENS),),
        rules=(
            DecisionRule(
                code="longest-hit",
                because="it held the most of the prompt among the instances its prefix may go to; ties go to the less loaded one",
                order=("hit_tokens", "pending_tokens", "decode_tokens"),
            ),
            DecisionRule(
                code="slo-guard",
                because="the instance that held more of the prompt would have endangered the TTFT target",
                order=(TOTAL,),
                given=(
                    Comparison(of=PASSED_OVER, term=TOTAL, holds=Holds.ABOVE, against="overload_tokens"),
                    Comparison(of=PASSED_OVER, term=TOTAL, holds=Holds.ABOVE, against="chosen"),
                ),
            ),
            DecisionRule(code="only-named", because="of the instances its prefix may go to, it was the only one that takes requests"),
            DecisionRule(
                code="none-named",
                because="none of the instances its prefix may go to takes requests; of all others, this one had the fewest tokens waiting",
                order=("pending_tokens", "decode_tokens"),
            ),
        ),
    ),
)
