"""Fairlead's own policy. It compares all instances, and its prefix affinity grows with the pool's load. Its queues
serve requests within the TTFT target as long as this is possible.

The instance with the least `wait + rest + affinity x prefill` gets the request. The wait leaves out late requests,
which are served last. Wait and rest are longer on instances with many decodes, because the queue reserves time for
decodes between prefills (see `queues.deadline`). The affinity is the value of a second of cached prefill relative to a
second of waiting: 1 / (1 - load). At load 0.5, a second of work delays the requests behind it by one more second in
total; at load 0.75, by three.

A full KV cache counts as a short additional wait. Otherwise a short prefix that all sessions share would draw all new
sessions to the instance that computed it first. If the cheapest instance is predicted to miss the TTFT target, the
instances that meet the target rank first, unless the cost of each of them exceeds the lowest cost by more than a whole
TTFT target. With `keep_weight`, contexts that a request would evict count as prefill too, weighted by the likelihood of
their sessions' next turns. Prefills and waits are scaled by the instance's observed pace relative to the other
instances. The delay that a prefill causes to other requests uses the pool's mean pace. With `learned_ttft`, a model's
prediction replaces `wait + rest + prefill` while the model's error is smaller.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np

from fairlead.predictors.learners import LearnerSettings
from fairlead.reports.bindings import Binding
from fairlead.reports.decisions import Weighing
from fairlead.reports.moves import MoveCause
from fairlead.routing.choosing.candidates import decision_in_order, weighed_in_order
from fairlead.routing.choosing.experience import BETTER
from fairlead.routing.choosing.instance_features import FEATURES, instance_features
from fairlead.routing.choosing.learnt_ttfts import Expectation, LearnsTtfts, LearntTtfts
from fairlead.routing.choosing.move_causes import by_cost, endangered, stay_and_go
from fairlead.routing.choosing.placement_costs import (
    FEW,
    Circumstances,
    Costs,
    CostsOfFew,
    costs_one_by_one,
    costs_over_vectors,
    evicted_tokens,
    in_time_first,
    in_time_first_of_few,
    slownesses,
    together,
)
from fairlead.routing.choosing.prefills import Prefills, prefills_of, prefills_one_by_one
from fairlead.routing.choosing.terms import DECODE_TOKENS
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.parameters import DISCIPLINES, HomeParameters
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import FloatVector, IntVector, PoolVectors
from fairlead.routing.contracts.weighing import PASSED_OVER, TOTAL, Comparison, DecisionRule, Holds, Limit, PolicyTerms, Term, Unit
from fairlead.routing.knowledge.pool_load import FULL, affinity
from fairlead.schemas.shapes import number, text, truth


@dataclass(frozen=True, slots=True, kw_only=True)
class FairleadParameters(HomeParameters):
    """Parameters of `fairlead`."""

    queue_discipline: str = text("Like the parameter of the same name for every policy; default: `deadline`.", "deadline", enum=DISCIPLINES)
    in_flight_seconds: float = number(
        (
            "Like the parameter of the same name for every policy, but only for requests that can still be in time. Short prefills "
            "that are sent one by one would leave gaps between them."
        ),
        0.07,
        minimum=0.0,
        maximum=60.0,
    )
    most_affinity: float = number(
        "Maximum worth of a second of prefill, in seconds of waiting. The worth is 1 / (1 - x) at load x: one second in an idle pool.",
        8.0,
        minimum=1.0,
        maximum=100.0,
    )
    kv_seconds: float = number(
        (
            "A full KV cache counts as this many seconds of waiting compared with an empty one, so that small "
            "savings do not gather decodes on few instances."
        ),
        0.3,
        minimum=0.0,
        maximum=60.0,
    )
    fetch: bool = truth(
        "Where engines can fetch KV blocks from each other, do so when that is predicted to be faster than computing them.", True
    )
    keep_weight: float = number(
        (
            "Weight of contexts that a request's new blocks would evict. The time to compute such a context again is multiplied by "
            "the likelihood of its session's next turn, estimated from the pauses in this pool, and by this weight, and counts as prefill; "
            "0 = contexts are not followed."
        ),
        0.0,
        minimum=0.0,
        maximum=100.0,
    )
    learned_ttft: bool = truth(
        "Learn TTFTs online as `lodestar` does, and use them instead of the TTFTs by the formula while their error on the same requests is smaller.",
        False,
    )

    @property
    def keeps_contexts(self) -> bool:
        return self.keep_weight > 0


IN_TIME = 0.9
"""Share of the TTFT target within which a predicted TTFT counts as in time. If the cheapest instance is not in time,
instances that are in time rank before all others. But if each of them costs a whole TTFT target more than the cheapest
instance, the order by cost remains. A first token in time would then cost other requests more than it gains. For
example, the session, with all its next turns, would leave its cache.
"""

STALE_SAMPLES = 10_000
"""Number of samples without a new model after which the trainer is assumed to have stopped."""

TIES = "to the instance with the most sessions, then by id"


class Fairlead:
    """The policy `fairlead`. With a `model`, it uses the model's predictions while their error is smaller than the
    formula's. Bindings record where a session's KV cache is, for routers that have not served the session.
    """

    name = "fairlead"
    binds = True

    def __init__(self, parameters: FairleadParameters, model: LearntTtfts | None = None) -> None:
        self._parameters = parameters
        self._model = model

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        given, vectors = self._parameters, view.vectors()
        home = None if request.session is None else view.binding(request.session)
        load = view.pool_load()
        worth = affinity(load, given.most_affinity)
        slo = view.table.slo.ttft_seconds
        limit = IN_TIME * slo if view.tokens_within(slo) < inf else inf
        can_fetch = given.fetch and view.fetching(request) is not None
        is_few = self._model is None and not can_fetch and len(vectors.loads) <= FEW
        circumstances = Circumstances(
            now=now,
            slowness=None if is_few else slownesses(vectors),
            overtaken=view.overtaken_seconds(request),
            worth=worth,
            rests_count=load >= FULL,  # while there is time, rests give way to deadlines
            kv_seconds=given.kv_seconds,
        )
        if is_few:
            prefills = prefills_one_by_one(request, home, view, vectors.loads)
            leanings = view.leanings(request, prefills.most)
            kept = self._kept_seconds(request, view, prefills.known, worth) if given.keep_weight else None
            circumstances.leanings = leanings if kept is None else together(leanings, kept)
            costs = costs_one_by_one(prefills.seconds, vectors, circumstances)
            order, cheapest = in_time_first_of_few(costs, vectors, limit, view.table.slo.ttft_seconds)
            return self._decision(
                request, view, vectors, now, home, prefills, costs, order, cheapest, worth=worth, limit=limit, leanings=leanings, kept=kept
            )
        return self._choose_over_vectors(request, view, vectors, now, home, circumstances, limit)

    def cause_to_leave(self, request: RoutingRequest, home: Binding, weighed: Weighing, view: PoolView, now: float) -> MoveCause:
        """See `KeepsHomes.cause_to_leave`."""
        here, there = stay_and_go(weighed, home.instance)
        limit = weighed.limits.get("in_time_seconds", inf)
        if weighed.rule.endswith(_IN_TIME.code) and here.predicted_ttft_seconds > limit:
            return endangered(here, view.table.slo.ttft_seconds, here.predicted_ttft_seconds, limit, Unit.SECONDS)
        return by_cost(here, there, Unit.SECONDS)

    def _choose_over_vectors(
        self,
        request: RoutingRequest,
        view: PoolView,
        vectors: PoolVectors,
        now: float,
        home: Binding | None,
        given: Circumstances,
        limit: float,
    ) -> Decision:
        prefills = prefills_of(request, home, view, vectors, fetch=self._parameters.fetch)
        leanings = view.leanings(request, prefills.most)
        kept = self._kept_seconds(request, view, prefills.known, given.worth) if self._parameters.keep_weight else None
        given.leanings = leanings if kept is None else together(leanings, kept)
        costs = costs_over_vectors(prefills.seconds, vectors, given)
        formula = costs.ttft
        expected = None if self._model is None else self._model.expect(instance_features(request, view, prefills.known))
        obeyed = None if expected is None else expected.obeyed
        if obeyed is not None:
            saved = prefills.alone - prefills.seconds
            ttft = np.maximum(0.0, obeyed - (saved if given.slowness is None else saved * given.slowness))
            total = costs.total + (ttft - (costs.wait + costs.rest + costs.prefill))
            costs = costs._replace(total=total, ttft=ttft)
        order, cheapest = in_time_first(costs, vectors, limit, view.table.slo.ttft_seconds)
        decision = self._decision(
            request,
            view,
            vectors,
            now,
            home,
            prefills,
            costs,
            order,
            cheapest,
            expected,
            worth=given.worth,
            limit=limit,
            leanings=leanings,
            kept=kept,
        )
        if self._model is None or expected is None:
            return decision
        self._model.chose(expected.distrust)
        if decision.transfer_from is not None:
            return decision  # a prefill with a fetched prefix tells nothing of others
        instance, best = decision.instance, order[0]
        learn = self._model.lesson(expected, best, float(formula[best]), now)
        return replace(decision, learn=lambda where, first_token_at: learn(first_token_at) if where == instance else None)

    def _decision(
        self,
        request: RoutingRequest,
        view: PoolView,
        vectors: PoolVectors,
        now: float,
        home: Binding | None,
        prefills: Prefills[IntVector, FloatVector] | Prefills[list[int], list[float]],
        costs: Costs | CostsOfFew,
        order: Sequence[int],
        cheapest: int,
        expected: Expectation | None = None,
        *,
        worth: float,
        limit: float,
        leanings: FloatVector | None,
        kept: FloatVector | None,
    ) -> Decision:
        total, ttft = costs.total, costs.ttft
        best = order[0]
        source = prefills.source_for(best)
        obeyed = None if expected is None else expected.obeyed

        def weigh() -> Weighing:
            limits = {"affinity": worth} | ({"in_time_seconds": limit} if limit < inf else {})
            return weighed_in_order(
                request,
                view,
                order,
                prefills.known,
                total,
                ("" if obeyed is None else LEARNED) + ("lowest-cost" if best == cheapest else "in-time-first"),
                home=None if home is None else home.instance,
                terms=partial(self._terms, vectors, costs, expected, leanings, kept),
                limits=limits | ({} if self._model is None else _errors(self._model)),
                passed_over=None if best == cheapest else cheapest,
                ttfts=lambda index: float(ttft[index]),
            )

        return decision_in_order(
            vectors.loads,
            order,
            DecisionReason.PREFIX_REPLICATED if source is not None else prefills.reason(best),
            weigh,
            transfer_from=None if source is None else vectors.loads[source].entry.id,
            ttft_seconds=float(ttft[best]),
        )

    def _kept_seconds(self, request: RoutingRequest, view: PoolView, known: IntVector | Sequence[int], worth: float) -> FloatVector | None:
        """Return, per instance, the cost in seconds of the contexts that the request would evict; None if the cached
        contexts are not known.
        """
        kept = view.kept_tokens()
        if kept is None:
            return None
        evicted = evicted_tokens(kept, request.prompt_tokens - np.array(known), view.table.engine.kv_cache_tokens)
        return self._parameters.keep_weight * worth / view.prefill_speed * evicted

    def _terms(
        self,
        vectors: PoolVectors,
        costs: Costs | CostsOfFew,
        expected: Expectation | None,
        leanings: FloatVector | None,
        kept: FloatVector | None,
        index: int,
    ) -> dict[str, float]:
        """Return the parts of the cost of the instance at this index, by term, for the record."""
        prefill, wait, rest, weighted = costs.parts(index)
        found = {
            "wait_seconds": wait,
            "rest_seconds": rest,
            "weighted_prefill_seconds": weighted,
            "kv_seconds": self._parameters.kv_seconds * float(vectors.kv_usage[index]),
            "prefill_seconds": prefill,
            "decode_tokens": float(vectors.decode_tokens[index]),
        }
        if leanings is not None:
            found["apart_seconds"] = float(leanings[index])
        if kept is not None:
            found["kept_seconds"] = float(kept[index])
        learned = None if expected is None else expected.of(index)
        if expected is not None and expected.obeyed is not None:
            found["learned_seconds"] = float(costs.ttft[index]) - (wait + rest + prefill)
        elif learned is not None:
            found["learned_ttft_seconds"] = learned
        return found


def _errors(model: LearntTtfts) -> dict[str, float]:
    """Return the prediction errors of the model and of the formula. A decision records them to explain whether the
    model is used.
    """
    if model.judged is None:
        return {}
    learned, formula = model.judged
    return {"learned_error_seconds": learned, "formula_error_seconds": formula}


class LearningFairlead(LearnsTtfts, Fairlead):
    """The policy `fairlead` with a trained TTFT model. The model's predictions are used while they are better than the
    predictions by the formula.
    """

    def __init__(self, parameters: FairleadParameters) -> None:
        model = LearntTtfts(LearnerSettings(feature_names=FEATURES), STALE_SAMPLES, BETTER)
        LearnsTtfts.__init__(self, model)
        Fairlead.__init__(self, parameters, model)


LEARNED = "learned-"
"""Prefix for the codes of the rules that used a trained model."""
_LESS_WRONG = Comparison(term="learned_error_seconds", holds=Holds.AT_MOST, against="formula_error_seconds")
_LOWEST = DecisionRule(code="lowest-cost", because="its cost was the lowest", order=(TOTAL, "decode_tokens"), ties=TIES)
_IN_TIME = DecisionRule(
    code="in-time-first",
    because="its cost was the lowest of those predicted to be in time",
    order=(TOTAL, "decode_tokens"),
    ties=TIES,
    among=Comparison(term="predicted_ttft_seconds", holds=Holds.AT_MOST, against="in_time_seconds"),
    given=(Comparison(of=PASSED_OVER, term="predicted_ttft_seconds", holds=Holds.ABOVE, against="in_time_seconds"),),
)


def _by_what_was_learnt(rule: DecisionRule) -> DecisionRule:
    return replace(
        rule,
        code=LEARNED + rule.code,
        because=f"the trained model, whose error is smaller than that of the router's own formula, predicted the TTFTs, and {rule.because}",
        given=(*rule.given, _LESS_WRONG),
    )


ENTRY = PolicyEntry(
    name=Fairlead.name,
    intent="Prefix affinity that grows with load, and queues that protect both first tokens and decode speed.",
    build=lambda parameters, seed: LearningFairlead(parameters) if parameters.learned_ttft else Fairlead(parameters),
    parameters=FairleadParameters,
    terms=PolicyTerms(
        total=Term(name=TOTAL, words="cost", unit=Unit.SECONDS),
        parts=(
            "wait_seconds",
            "rest_seconds",
            "weighted_prefill_seconds",
            "kv_seconds",
            "apart_seconds",
            "kept_seconds",
            "learned_seconds",
        ),
        terms=(
            Term(name="wait_seconds", words="wait", unit=Unit.SECONDS),
            Term(name="rest_seconds", words="rest that decodes there need first", unit=Unit.SECONDS),
            Term(name="weighted_prefill_seconds", words="prefill, and the delay it causes others", unit=Unit.SECONDS),
            Term(name="kv_seconds", words="for a full KV cache", unit=Unit.SECONDS),
            Term(name="apart_seconds", words="preferred by other routers", unit=Unit.SECONDS),
            Term(name="kept_seconds", words="for contexts it would evict", unit=Unit.SECONDS),
            Term(name="learned_seconds", words="from the model", unit=Unit.SECONDS),
            Term(name="learned_ttft_seconds", words="model TTFT, not used", unit=Unit.SECONDS),
            Term(name="prefill_seconds", words="prefill", unit=Unit.SECONDS),
            DECODE_TOKENS,
        ),
        limits=(
            Limit(name="affinity", words="worth of a second of prefill at this load", unit=Unit.SCORE),
            Limit(name="in_time_seconds", words="predicted TTFT that counts as in time", unit=Unit.SECONDS),
            Limit(name="learned_error_seconds", words="the model's error", unit=Unit.SECONDS),
            Limit(name="formula_error_seconds", words="error of the router's own formula", unit=Unit.SECONDS),
        ),
        rules=(_LOWEST, _IN_TIME, *(_by_what_was_learnt(rule) for rule in (_LOWEST, _IN_TIME))),
    ),
)
