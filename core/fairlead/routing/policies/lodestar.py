"""Lodestar: chooses the instance with the shortest TTFT predicted by a trained model, including the delay for later
requests. Outside the model's training data it falls back on a heuristic.

The model is a small network over features of each instance and the request (`instance_features`). It is trained outside
the policy on the results of this router's own requests (`fairlead.predictors`). The policy follows Lodestar (arXiv
2606.00946), Algorithms 3 and 4, with two changes. First, ties are broken. (The published tie-break has no effect,
because it compares with a bound above the best value.) Second, the policy takes the delay of later requests into
account. The published policy minimises the TTFT of each request alone. Close to saturation it therefore reuses so
little of the caches that all requests wait longer.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fairlead.predictors.coresets import Selection
from fairlead.predictors.learners import LearnerSettings
from fairlead.predictors.reports import HeuristicReason
from fairlead.routing.choosing.candidates import FALLBACKS, ordered_decision
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.choosing.experience import HARDLY_WORSE
from fairlead.routing.choosing.falling_back import OTHER_TOTAL, as_fallback, rules_for
from fairlead.routing.choosing.instance_features import FEATURES, OF_THE_FORMULA, instance_features
from fairlead.routing.choosing.learnt_ttfts import Expectation, LearnsTtfts, LearntTtfts
from fairlead.routing.choosing.placed_prompts import PlacedPrompts
from fairlead.routing.choosing.prefix_groups import LARGEST_HOME, PrefixGroups
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import FloatVector, IntVector, PoolVectors
from fairlead.routing.contracts.weighing import (
    ONLY_INSTANCE,
    TOTAL,
    Better,
    Comparison,
    DecisionRule,
    Holds,
    Limit,
    PolicyTerms,
    Term,
    Unit,
)
from fairlead.routing.knowledge.pool_load import affinity
from fairlead.routing.policies.prefix_cache_load import ENTRY as HEURISTIC
from fairlead.routing.policies.prefix_cache_load import PrefixCacheLoad, PrefixCacheLoadParameters
from fairlead.schemas.shapes import number, text, truth, whole
from fairlead.tables import RoutingTable

Truths = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class LodestarParameters(PrefixCacheLoadParameters):
    """Parameters of `lodestar`: the parameters of its heuristic, of its predictions, and of its model's training."""

    mode: str = text(
        "`Active` places requests by the model; `Shadow` predicts and records, and the heuristic places them.",
        "Active",
        enum=("Active", "Shadow"),
    )
    out_of_distribution: str = text(
        (
            "When the heuristic decides. `candidates`: if the request is unlike the training data; a candidate that is unlike "
            "the data gets the model's prediction for the nearest known row, corrected by the router's own formula. "
            "`pool`, as published: if any feature of any instance is unlike the data."
        ),
        "candidates",
        enum=("candidates", "pool"),
    )
    near_best: float = number(
        (
            "Instances whose cost exceeds the lowest by at most this share of it count as equal (published: 0.1); among "
            "them, the most cached tokens decide, then the fewest waiting tokens."
        ),
        0.0,
        minimum=0.0,
        maximum=10.0,
    )
    near_errors: float = number(
        (
            "Instances whose costs differ by less than this many mean errors of the model also count as equal: "
            "the model cannot distinguish them."
        ),
        1.0,
        minimum=0.0,
        maximum=10.0,
    )
    most_affinity: float = number(
        (
            "Maximum worth of a second of prefill, in seconds of TTFT. At load x it is 1 / (1 - x), for the "
            "request itself and the delay it causes others; with 1, as published, each request minimises only its "
            "own TTFT."
        ),
        8.0,
        minimum=1.0,
        maximum=100.0,
    )
    exploration: float = number("Share of random choices, so that the model learns every instance.", 0.0, minimum=0.0, maximum=1.0)
    filter_instances: int = whole(
        "While memory is short, prompts with the same beginning stay on this many instances (published: 2); 0 = no such filter.",
        0,
        maximum=LARGEST_HOME,
    )
    filter_kv_usage: float = number("The filter acts while the mean KV cache use is above this.", 0.8, minimum=0.0, maximum=1.0)
    filter_hit_tokens: int = whole(
        "The filter acts only if an instance holds more tokens of the prompt than this.", 100, maximum=100_000_000
    )
    filter_blocks: int = whole("Blocks at the beginning of a prompt by which the filter groups them.", 10, minimum=1, maximum=100_000)
    first_samples: int = whole(
        "Number of samples needed for the first model; until then the heuristic chooses.", 1000, minimum=10, maximum=1_000_000
    )
    round_samples: int = whole("Number of new samples needed for each further model.", 1000, minimum=10, maximum=1_000_000)
    stale_samples: int = whole(
        "After this many samples without a new model, the heuristic decides again: the trainer is assumed to have failed.",
        10_000,
        minimum=10,
        maximum=100_000_000,
    )
    recent_samples: int = whole("Number of newest samples used for training.", 5000, minimum=10, maximum=100_000)
    replay_samples: int = whole("Number of older samples also used for training, chosen by `selection`.", 5000, maximum=100_000)
    selection: str = text(
        (
            "Older samples that are kept. `corrected`: samples that the model mispredicts and that differ from the "
            "rest; `published`: samples that differ from the rest; `fifo`: none."
        ),
        Selection.CORRECTED.value,
        enum=tuple(one.value for one in Selection),
    )
    longest_ttft_seconds: float = number("Samples with a longer TTFT are left out of training.", 15.0, minimum=0.1, maximum=3600.0)
    hidden_units: int = whole("Units in each of the network's three layers.", 128, minimum=4, maximum=1024)
    from_scratch: bool = truth("Train each model from random weights instead of the previous model's.", False)


class Lodestar(LearnsTtfts):
    """The policy `lodestar`. Ties that remain after `near_best` go to the lowest id."""

    name = "lodestar"

    def __init__(self, parameters: LodestarParameters, seed: int) -> None:
        self._parameters = parameters
        self._heuristic = PrefixCacheLoad(parameters, seed)
        self._dice = Dice(seed)
        self._placed = PlacedPrompts(parameters.queue_timeout_seconds)
        self._groups = PrefixGroups(parameters.filter_instances, parameters.filter_blocks)
        super().__init__(LearntTtfts(_learner_settings(parameters), parameters.stale_samples, HARDLY_WORSE))

    def table_changed(self, table: RoutingTable) -> None:
        self._groups.table_changed(table)

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        vectors = view.vectors()
        given = self._parameters
        hits = self._placed.with_placed(request, view.hit_vector(request), vectors, request.block_tokens or view.table.engine.block_tokens)
        expected = self._learnt.expect(instance_features(request, view, hits), whole_pool=given.out_of_distribution == "pool")
        if given.mode == "Shadow":
            expected = replace(expected, distrust=HeuristicReason.SHADOW)
        self._learnt.chose(expected.distrust)
        if expected.obeyed is not None:
            decision, index = self._by_model(request, view, vectors, hits, expected.obeyed)
        else:
            assert expected.distrust is not None, "a trusted model always has an answer"
            decision, index = self._by_heuristic(request, view, vectors, expected, expected.distrust)
        self._placed.place(request, decision.instance, now)
        learn = self._learnt.lesson(expected, index, float(expected.features[index, OF_THE_FORMULA]), now)

        def came(instance: str, first_token_at: float) -> None:
            self._placed.computed(request)
            if instance == decision.instance:
                learn(first_token_at)

        return replace(decision, learn=came)

    def _by_model(
        self, request: RoutingRequest, view: PoolView, vectors: PoolVectors, hits: IntVector, ttfts: FloatVector
    ) -> tuple[Decision, int]:
        given = self._parameters
        count = len(ttfts)
        weights = self._costs(request, view, hits, ttfts)
        costs = weights.total
        if given.exploration and self._dice.below(1_000_000) < given.exploration * 1_000_000:
            index = self._dice.below(count)
            order = [index, *(other for other in np.argsort(costs, kind="stable")[: FALLBACKS + 1].tolist() if other != index)]
            return self._decision(request, view, order, hits, weights, "explored"), index
        members = self._group(request, vectors, hits)
        filtered = bool(members)
        choosable = np.full(count, not filtered)
        choosable[members] = True
        order = np.lexsort((costs, ~choosable)).tolist()
        best = costs[order[0]]
        bound = float(best + max(given.near_best * abs(best), given.near_errors * self._model_error()))
        near = np.flatnonzero(choosable & (costs <= bound))
        first = order[0]
        if len(near) > 1:
            first = int(near[np.lexsort((vectors.pending[near], -hits[near]))[0]])
        rule = ("group" if filtered else "learned") + ("-near-best" if len(near) > 1 else "")
        order = [first, *(other for other in order if other != first)]
        unfiltered = int(costs.argmin())
        return (
            self._decision(
                request,
                view,
                order,
                hits,
                weights,
                rule,
                eligible=choosable & (costs <= bound) if len(near) > 1 else choosable,
                near_best_seconds=bound,
                passed_over=unfiltered if not choosable[unfiltered] else None,
            ),
            first,
        )

    def _costs(self, request: RoutingRequest, view: PoolView, hits: IntVector, ttfts: FloatVector) -> "_Costs":
        """Return the costs of a request. The delay that the prefill causes to other requests is computed with the
        pool's speed even on a slow instance. A prefill takes longer there, but fewer requests wait there, in the same
        proportion.
        """
        worth = affinity(view.pool_load(), self._parameters.most_affinity)
        others: FloatVector = (worth - 1) * view.prefill_vector(request, hits)
        return _Costs(affinity=worth, ttfts=ttfts, others=others, total=ttfts + others)

    def _model_error(self) -> float:
        """Return the mean absolute error, in seconds, of the model in use, on samples held out from its training."""
        error = None if self._learnt.model is None else self._learnt.model.evaluation.error_seconds
        return 0.0 if error is None else error

    def _group(self, request: RoutingRequest, vectors: PoolVectors, hits: IntVector) -> list[int]:
        given = self._parameters
        if not given.filter_instances or float(vectors.kv_usage.mean()) <= given.filter_kv_usage:
            return []
        return self._groups.members(request, vectors) if int(hits.max()) > given.filter_hit_tokens else []

    def _decision(
        self,
        request: RoutingRequest,
        view: PoolView,
        order: list[int],
        hits: IntVector,
        costs: "_Costs",
        rule: str,
        *,
        eligible: Truths | None = None,
        near_best_seconds: float | None = None,
        passed_over: int | None = None,
    ) -> Decision:
        limits = {"affinity": costs.affinity}
        if near_best_seconds is not None:
            limits |= {"near_best_seconds": near_best_seconds, "outside": 0.0}
        return ordered_decision(
            request,
            view,
            order,
            hits,
            costs.total,
            DecisionReason.RANDOM if rule == "explored" else DecisionReason.LEARNED_TTFT,
            rule,
            terms=lambda index: (
                {"others_seconds": float(costs.others[index])} | ({} if eligible is None else {"eligible": float(eligible[index])})
            ),
            limits=limits,
            passed_over=passed_over,
            ttfts=lambda index: float(costs.ttfts[index]),
            ttft_seconds=max(0.0, float(costs.ttfts[order[0]])),
        )

    def _by_heuristic(
        self, request: RoutingRequest, view: PoolView, vectors: PoolVectors, expected: Expectation, reason: HeuristicReason
    ) -> tuple[Decision, int]:
        decision = self._heuristic.choose(request, view, 0.0)
        names = [load.entry.id for load in vectors.loads]

        def terms(instance: str) -> dict[str, float]:
            ttft = expected.of(names.index(instance)) if instance in names else None
            return {} if ttft is None else {"learned_ttft_seconds": ttft}

        weigh = as_fallback(decision.weigh, reason.value, ONLY_INSTANCE, terms)
        return replace(decision, weigh=weigh), names.index(decision.instance)


def _learner_settings(given: LodestarParameters) -> LearnerSettings:
    return LearnerSettings(
        feature_names=FEATURES,
        first_samples=given.first_samples,
        round_samples=given.round_samples,
        recent_samples=given.recent_samples,
        replay_samples=given.replay_samples,
        selection=Selection(given.selection),
        longest_ttft_seconds=given.longest_ttft_seconds,
        width=given.hidden_units,
        from_scratch=given.from_scratch,
    )


class _Costs(NamedTuple):
    """The cost of a request on each instance [n], in seconds: the TTFT predicted by the model, and the delay that the
    prefill causes to other requests. `affinity` is the value of a second of prefill, in seconds of waiting.
    """

    affinity: float
    ttfts: FloatVector
    others: FloatVector
    total: FloatVector


WHY = {
    HeuristicReason.COLD_START: "no model has been trained yet",
    HeuristicReason.STALE_MODEL: "too many samples have come without a newer model",
    HeuristicReason.OUT_OF_DISTRIBUTION: "the request or the instances were unlike those the model was trained on",
    HeuristicReason.NOT_FINITE: "the model's answer was not a number",
    HeuristicReason.LOSING: "the model's error was more than twice the error of the router's own formula on the same requests",
    HeuristicReason.SHADOW: "the model only observes (mode Shadow)",
}
ELIGIBLE = Comparison(term="eligible", holds=Holds.ABOVE, against="outside")
MOST_CACHED = ("hit_tokens", "pending_tokens")
EXPECTED = "the TTFT that the model expected there, plus the wait that its prefill causes others, was the lowest"
NEAR = (
    "the TTFT that the model expected there, plus the wait that its prefill causes others, was close to the lowest, and it held the most "
    "of the prompt among the instances close to the lowest"
)
FILTERED = "memory is short, so prompts with the same beginning are kept together; within the prefix group's instances "

ENTRY = PolicyEntry(
    name=Lodestar.name,
    intent="The instance where a model trained online expects the shortest TTFT; a heuristic outside its training data.",
    build=Lodestar,
    parameters=LodestarParameters,
    terms=PolicyTerms(
        total=Term(name=TOTAL, words="cost", unit=Unit.SECONDS),
        parts=("predicted_ttft_seconds", "others_seconds"),
        terms=(
            Term(name="others_seconds", words="others wait for its prefill", unit=Unit.SECONDS),
            Term(name=OTHER_TOTAL, words="requests", unit=Unit.REQUESTS),
            Term(name="learned_ttft_seconds", words="model TTFT, not used", unit=Unit.SECONDS),
            Term(name="eligible", words="counted as equal to the lowest", unit=Unit.SCORE, better=Better.HIGHER),
        ),
        limits=(
            Limit(name="near_best_seconds", words="cost that counts as equal to the lowest", unit=Unit.SECONDS),
            Limit(name="affinity", words="worth of a second of prefill at this load", unit=Unit.SCORE),
            Limit(name="outside", words="score of instances that the rule excluded", unit=Unit.SCORE),
            *HEURISTIC.terms.limits,
        ),
        rules=(
            DecisionRule(code="learned", because=EXPECTED, order=(TOTAL,), among=ELIGIBLE),
            DecisionRule(code="learned-near-best", because=NEAR, order=MOST_CACHED, among=ELIGIBLE),
            DecisionRule(code="group", because=FILTERED + EXPECTED, order=(TOTAL,), among=ELIGIBLE),
            DecisionRule(code="group-near-best", because=FILTERED + NEAR, order=MOST_CACHED, among=ELIGIBLE),
            DecisionRule(code="explored", because="it was drawn at random, so that the model learns every instance", ties="by chance"),
            *rules_for({reason.value: words for reason, words in WHY.items()}, HEURISTIC.terms),
        ),
    ),
)
