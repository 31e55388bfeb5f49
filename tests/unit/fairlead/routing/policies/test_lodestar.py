from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.predictors.models import Model
from fairlead.predictors.refusals import ModelFault, ModelRefused
from fairlead.predictors.reports import HeuristicReason
from fairlead.routing.choosing.instance_features import FEATURES, instance_features
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.knowledge.pool_load import affinity
from fairlead.routing.policies.lodestar import Lodestar, LodestarParameters
from fairlead.routing.policies.prefix_cache_load import PrefixCacheLoad, PrefixCacheLoadParameters
from fairlead_testing.builders.routing import ScriptedView, entry, request, table
from fairlead_testing.worlds.learnt_models import sum_of
from fairlead_testing.worlds.watched_policy import WatchedPolicy

WAITING_TOKENS = FEATURES.index("prefill_tokens")


def pool(*pending: int, hits: dict[str, int] | None = None, policy: str = "lodestar", **counters: float) -> ScriptedView:
    """Return instances i0, i1, … with this many tokens to compute; `hits` are those of request `r`."""
    loads = {
        f"i{index}": InstanceLoad(entry=entry(f"i{index}"), pending_prefill_tokens=tokens, **counters)  # type: ignore[arg-type]
        for index, tokens in enumerate(pending)
    }
    of = table([load.entry for load in loads.values()], policy=policy)
    return ScriptedView(of, loads, {("r", name): tokens for name, tokens in (hits or {}).items()})


def lodestar(model: Model | None, view: ScriptedView, **parameters: object) -> Lodestar:
    policy = Lodestar(LodestarParameters(**parameters), 1)  # type: ignore[arg-type]
    policy.table_changed(view.table)
    if model is not None:
        policy.adopt(model)
    return policy


def bounded(model: Model, **ranges: tuple[float, float]) -> Model:
    """Return the model as if it was trained on these ranges only."""
    lowest, highest = model.scales.lowest.copy(), model.scales.highest.copy()
    for name, (low, high) in ranges.items():
        lowest[FEATURES.index(name)], highest[FEATURES.index(name)] = low, high
    return replace(model, scales=model.scales._replace(lowest=lowest, highest=highest))


def test_the_shortest_learnt_ttft_wins() -> None:
    view = pool(5000, 1000, 3000)
    decision = lodestar(sum_of("prefill_tokens"), view).choose(request("r"), view, 0.0)
    assert (decision.instance, decision.reason) == ("i1", DecisionReason.LEARNED_TTFT)
    assert decision.ttft_seconds == pytest.approx(1.0)
    assert decision.fallbacks == ("i2", "i0")


def test_the_next_turn_goes_where_the_turn_before_it_still_waits() -> None:
    """Another instance would compute it a little earlier, but then other requests would wait for the whole prompt."""
    view = pool(9000, 9000)
    policy = lodestar(sum_of("prefill_tokens", "paced_ttft_seconds"), view, near_errors=0.0)
    before, after = request("r", 4100, blocks=tuple(range(1, 9))), request("s", 5200, blocks=tuple(range(1, 11)))
    first = policy.choose(before, view, 0.0)
    view.load_of_pool = 0.75
    view.loads[first.instance].pending_prefill_tokens += 1000
    found = policy.choose(after, view, 1.0)
    assert found.instance == first.instance
    assert found.candidates[0].hit_tokens == 4096
    for computed in (first, found):  # and evicted at once: nobody is seen to hold any of it
        assert computed.learn is not None
        computed.learn(first.instance, 20.0)
    assert policy.choose(replace(after, id="t"), view, 20.0).instance != first.instance


def test_the_published_example_of_near_best_takes_the_two_that_are_close() -> None:
    """The TTFTs are 1.00, 1.05 and 1.40 s. Two are below the bound of 1.10 s, but none by the printed rule."""
    view = pool(1000, 1050, 1400, hits={"i1": 512})
    decision = lodestar(sum_of("prefill_tokens"), view, near_best=0.1).choose(request("r"), view, 0.0)
    assert (decision.instance, decision.weigh().rule) == ("i1", "learned-near-best")
    assert decision.weigh().limits["near_best_seconds"] == pytest.approx(1.1)
    assert lodestar(sum_of("prefill_tokens"), view, near_errors=0.0).choose(request("r"), view, 0.0).instance == "i0"


def test_what_the_model_cannot_tell_apart_goes_by_the_cache() -> None:
    """The model's error is 0.1 s on samples that it was not trained on, so a difference of 0.05 s means nothing."""
    view = pool(1000, 1050, 1120, hits={"i1": 512, "i2": 1000})
    decision = lodestar(sum_of("prefill_tokens"), view).choose(request("r"), view, 0.0)
    assert decision.instance == "i1"
    assert decision.weigh().limits["near_best_seconds"] == pytest.approx(1.1)


def test_near_best_does_not_leave_the_prefix_group() -> None:
    view = pool(1000, 1050, 1400, 1200, hits={"i0": 512}, kv_usage=0.9)
    asked = replace(request("r"), blocks=tuple(range(1, 3)))
    policy = lodestar(sum_of("prefill_tokens"), view, near_best=0.5, filter_instances=2)
    group = policy._groups.members(asked, view.vectors())
    decision = policy.choose(asked, view, 0.0)
    assert len(group) == 2
    assert int(decision.instance[1:]) in group
    assert decision.weigh().rule == "group-near-best"


def test_the_filter_acts_only_while_memory_is_short_and_somebody_holds_the_prefix() -> None:
    asked = replace(request("r"), blocks=(7,))
    rules = []
    for usage, held in ((0.9, 512), (0.8, 512), (0.9, 100)):
        view = pool(9000, 1000, 9000, 9000, 9000, 9000, hits={"i0": held}, kv_usage=usage)
        policy = lodestar(sum_of("prefill_tokens"), view, filter_instances=1, near_errors=0.0)
        rules.append(policy.choose(asked, view, 0.0).weigh().rule)
    assert rules == ["group", "learned", "learned"]


def test_a_group_stays_where_it_is_when_an_instance_comes() -> None:
    small, large = pool(*[0] * 8), pool(*[0] * 9)
    policy = lodestar(None, small, filter_instances=2)
    groups = [replace(request(f"r{key}"), blocks=(key,)) for key in range(300)]
    before = [set(policy._groups.members(one, small.vectors())) for one in groups]
    policy.table_changed(large.table)
    after = [set(policy._groups.members(one, large.vectors())) for one in groups]
    assert all(found - known <= {8} for known, found in zip(before, after, strict=True))
    assert sum(known != found for known, found in zip(before, after, strict=True)) < 300 * 0.4


def test_prompts_with_one_beginning_are_one_group_however_they_end() -> None:
    view = pool(*[0] * 8)
    policy = lodestar(None, view, filter_blocks=10)
    beginning = tuple(range(100, 110))
    one, two = (replace(request("r"), blocks=(*beginning, *more)) for more in ((1, 2), (3,)))
    assert policy._groups.members(one, view.vectors()) == policy._groups.members(two, view.vectors())


def chose(policy: Lodestar, view: ScriptedView, reason: HeuristicReason) -> None:
    """Assert that the heuristic chose as it would alone, for this reason, and that this is counted and recorded."""
    decision = policy.choose(request("r"), view, 0.0)
    alone = PrefixCacheLoad(PrefixCacheLoadParameters(), 1).choose(request("r"), view, 0.0)
    assert (decision.instance, decision.reason, decision.fallbacks) == (alone.instance, alone.reason, alone.fallbacks)
    assert decision.weigh().rule == f"{reason.value}-{alone.weigh().rule}"
    assert policy.learning().heuristic_choices == {reason: 1}
    assert policy.learning().learned_choices == 0


def test_without_a_model_the_heuristic_chooses() -> None:
    view = pool(0, 0, hits={"i1": 512})
    chose(lodestar(None, view), view, HeuristicReason.COLD_START)


def test_in_shadow_mode_the_heuristic_chooses_and_the_prediction_is_recorded() -> None:
    view = pool(2000, 1000, hits={"i0": 512})
    policy = lodestar(sum_of("prefill_tokens"), view, mode="Shadow")
    chose(policy, view, HeuristicReason.SHADOW)
    decision = policy.choose(request("r"), view, 0.0)
    assert decision.candidates[0].terms["learned_ttft_seconds"] == pytest.approx(2.0)
    assert decision.learn is not None
    decision.learn("i0", 2.5)
    assert policy.learning().error_seconds == pytest.approx(0.5)


def test_a_prompt_unlike_those_learnt_from_goes_by_the_heuristic() -> None:
    view = pool(0, 0, hits={"i1": 512})
    chose(lodestar(bounded(sum_of("prefill_tokens"), prompt_tokens=(1, 1000)), view), view, HeuristicReason.OUT_OF_DISTRIBUTION)


def test_an_instance_busier_than_any_learnt_is_predicted_by_the_formula_from_there_or_the_whole_pool_as_published() -> None:
    """The model was trained on up to 5000 waiting tokens and 5 s. Beyond that, the formula adds the rest."""
    view = pool(9000, 5500, 5000, hits={"i2": 512})
    model = bounded(sum_of("prefill_tokens"), prefill_tokens=(600, 5000), paced_ttft_seconds=(0.0, 0.5))
    decision = lodestar(model, view, near_errors=0.0).choose(request("r"), view, 0.0)
    formula = [view.predicted_ttft_seconds(request("r"), name) for name in ("i0", "i1", "i2")]
    assert formula[0] - 0.5 > formula[1] - 0.5 > 0
    expected = {one.instance: one.predicted_ttft_seconds for one in decision.candidates}
    assert expected["i0"] == pytest.approx(5.0 + formula[0] - 0.5, rel=1e-5)
    assert (decision.instance, decision.weigh().rule) == ("i2", "learned")
    chose(lodestar(model, view, out_of_distribution="pool"), view, HeuristicReason.OUT_OF_DISTRIBUTION)


def test_bounds_are_part_of_what_was_learnt() -> None:
    view = pool(600, 5000)
    policy = lodestar(bounded(sum_of("prefill_tokens"), prefill_tokens=(600, 5000)), view, out_of_distribution="pool")
    assert policy.choose(request("r"), view, 0.0).instance == "i0"


def test_a_model_whose_answer_is_no_number_is_not_obeyed() -> None:
    view = pool(0, 0, hits={"i1": 512})
    model = sum_of("prefill_tokens")
    first = model.network.weights[0].copy()
    first[FEATURES.index("prompt_tokens")] = 3e38
    endless = replace(model, network=replace(model.network, weights=(first, *model.network.weights[1:])))
    with np.errstate(over="ignore", invalid="ignore"):
        chose(lodestar(endless, view), view, HeuristicReason.NOT_FINITE)


def test_a_model_that_no_newer_one_follows_is_obeyed_only_so_long() -> None:
    view = pool(0, 0, hits={"i1": 512})
    policy = lodestar(sum_of("prefill_tokens"), view, stale_samples=10)
    for _ in range(11):
        decision = policy.choose(request("r"), view, 0.0)
        assert decision.reason is DecisionReason.LEARNED_TTFT
        assert decision.learn is not None
        decision.learn(decision.instance, 1.0)
    assert policy.choose(request("r"), view, 0.0).weigh().rule.startswith("stale-model-")
    policy.adopt(sum_of("prefill_tokens", number=2))
    assert policy.choose(request("r"), view, 0.0).reason is DecisionReason.LEARNED_TTFT


def test_a_model_that_errs_by_twice_as_much_as_the_formula_is_not_obeyed_until_it_errs_by_clearly_less() -> None:
    view = pool(1000, 1000)
    policy = lodestar(sum_of("prefill_tokens"), view)
    formula = view.predicted_ttft_seconds(request("r"), "i0")

    def serve(requests: int, ttft: float) -> None:
        for _ in range(requests):
            decision = policy.choose(request("r"), view, 0.0)
            assert decision.learn is not None
            decision.learn(decision.instance, ttft)

    serve(99, formula)
    assert policy.choose(request("r"), view, 0.0).reason is DecisionReason.LEARNED_TTFT
    serve(1, formula)
    assert policy.choose(request("r"), view, 0.0).weigh().rule.startswith("losing-")
    serve(52, 1.0)
    report = policy.learning()
    assert report.error_seconds == pytest.approx(100 / 152 * (1 - formula))
    assert report.formula_error_seconds == pytest.approx(52 / 152 * (1 - formula))
    assert policy.choose(request("r"), view, 0.0).weigh().rule.startswith("losing-"), "by less, but not by clearly less"
    serve(8, 1.0)
    assert policy.choose(request("r"), view, 0.0).reason is DecisionReason.LEARNED_TTFT
    serve(7, formula)
    assert policy.choose(request("r"), view, 0.0).reason is DecisionReason.LEARNED_TTFT, "by less than twice as much"


def test_the_fuller_the_pool_the_more_its_own_shorter_wait_must_save_a_request_that_is_cached_elsewhere() -> None:
    """By the model the cached prompt waits a second longer. The other instance computes 1,000 tokens more, which take
    0.16 s.
    """
    view = pool(1000, 2000, hits={"i1": 1000})
    policy = lodestar(sum_of("prefill_tokens"), view, near_errors=0.0)
    miss = float(view.prefill_vector(request("r"), view.hit_vector(request("r")))[0])
    chosen = []
    for load in (0.0, 0.5, 0.85, 0.9, 2.0):
        view.load_of_pool = load
        decision = policy.choose(request("r"), view, 0.0)
        chosen.append(decision.instance)
        away = decision.candidates[[one.instance for one in decision.candidates].index("i0")]
        worth = decision.weigh().limits["affinity"]
        assert worth == pytest.approx(affinity(load, most=8.0))
        assert away.predicted_ttft_seconds == pytest.approx(1.0)
        assert away.terms["others_seconds"] == pytest.approx((worth - 1) * miss)
    assert chosen == ["i0", "i0", "i0", "i1", "i1"]
    assert lodestar(sum_of("prefill_tokens"), view, near_errors=0.0, most_affinity=1.0).choose(request("r"), view, 0.0).instance == "i0"


def test_what_others_wait_for_a_prefill_is_the_same_on_a_slow_instance() -> None:
    """A slow instance needs more time for the same work, but fewer requests wait there in proportion."""
    view = pool(1000, 1000, prefill_pace=2.0)
    plain = pool(1000, 1000)
    costs = []
    for one in (view, plain):
        one.load_of_pool = 0.8
        decision = lodestar(sum_of("prefill_tokens"), one).choose(request("r"), one, 0.0)
        costs.append(decision.candidates[0].terms["others_seconds"])
    assert costs[0] == costs[1] > 0


def test_another_model_is_judged_by_its_own_predictions() -> None:
    view = pool(1000, 5000)
    policy = lodestar(sum_of("prefill_tokens"), view)
    for _ in range(150):
        decision = policy.choose(request("r"), view, 0.0)
        assert decision.learn is not None
        decision.learn(decision.instance, 0.0)
    assert policy.choose(request("r"), view, 0.0).weigh().rule.startswith("losing-")
    policy.adopt(sum_of("prefill_tokens", number=2))
    assert policy.choose(request("r"), view, 0.0).reason is DecisionReason.LEARNED_TTFT


def test_requests_placed_by_the_model_before_do_not_count_for_or_against_another() -> None:
    view = pool(1000, 5000)
    policy = lodestar(sum_of("prefill_tokens"), view)
    under_way = [policy.choose(request("r"), view, 0.0) for _ in range(150)]
    policy.adopt(sum_of("prefill_tokens", number=2))
    for decision in under_way:
        assert decision.learn is not None
        decision.learn(decision.instance, 0.0)
    assert policy.learning().error_seconds is None
    assert len(policy.take_samples()) == 150, "they are learnt from all the same"
    assert policy.choose(request("r"), view, 0.0).reason is DecisionReason.LEARNED_TTFT


def test_models_that_do_not_fit_are_refused_and_the_one_in_use_stays() -> None:
    view = pool(5000, 1000)
    policy = lodestar(sum_of("prefill_tokens"), view)
    other = replace(sum_of("prefill_tokens"), feature_names=("a",))
    model = sum_of("prefill_tokens")
    nan = replace(model, network=replace(model.network, biases=(np.full(4, np.nan, dtype=np.float32), *model.network.biases[1:])))
    for refused, fault in ((other, ModelFault.FEATURES), (nan, ModelFault.NOT_FINITE)):
        with pytest.raises(ModelRefused) as refusal:
            policy.adopt(refused)
        assert refusal.value.fault is fault
    assert policy.choose(request("r"), view, 0.0).instance == "i1"


def test_exploration_asks_everybody_and_neither_filter_nor_tie_break() -> None:
    view = pool(9000, 0, 9000, hits={"i1": 512}, kv_usage=0.95)
    policy = lodestar(sum_of("prefill_tokens"), view, exploration=1.0)
    decisions = [policy.choose(request("r"), view, 0.0) for _ in range(60)]
    assert {decision.instance for decision in decisions} == {"i0", "i1", "i2"}
    assert {decision.weigh().rule for decision in decisions} == {"explored"}


def test_what_comes_of_a_choice_is_learnt_from_once_its_own_instance_served_it() -> None:
    view = pool(5000, 1000)
    policy = lodestar(sum_of("prefill_tokens"), view)
    first, second = (policy.choose(request("r"), view, 10.0) for _ in range(2))
    assert first.learn is not None
    assert second.learn is not None
    first.learn("i1", 11.5)
    second.learn("i0", 11.5)
    samples = policy.take_samples()
    assert (len(samples), float(samples.ttft_seconds[0]), float(samples.features[0, WAITING_TOKENS])) == (1, 1.5, 1000.0)
    assert len(policy.take_samples()) == 0
    assert policy.learning().error_seconds == pytest.approx(0.5)


@given(st.permutations(range(6)), st.lists(st.integers(0, 8000), min_size=6, max_size=6, unique=True))
def test_instances_that_change_places_change_their_predictions_with_them(order: list[int], pending: list[int]) -> None:
    plain, moved = pool(*pending), pool(*(pending[place] for place in order))
    model = sum_of("prefill_tokens")
    rows, others = (instance_features(request("r"), view, view.hit_vector(request("r"))) for view in (plain, moved))
    assert model.ttft_seconds(rows)[list(order)].tolist() == pytest.approx(model.ttft_seconds(others).tolist())


@given(
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 12), st.integers(0, 1024), st.floats(0, 1)), min_size=2, max_size=8),
    st.sampled_from([None, "prefill_tokens", "running"]),
    st.floats(0, 0.5),
    st.booleans(),
    st.sampled_from(["candidates", "pool"]),
    st.floats(0, 1),
    st.floats(0, 2),
)
def test_every_recorded_choice_agrees_with_its_rule(
    drawn: list[tuple[int, int, int, float]], by: str | None, near: float, shadow: bool, scope: str, exploration: float, load: float
) -> None:
    loads = {
        f"i{index}": InstanceLoad(entry=entry(f"i{index}"), pending_prefill_tokens=pending, decoding=decoding, kv_usage=usage)
        for index, (pending, decoding, _, usage) in enumerate(drawn)
    }
    hits = {("r", f"i{index}"): hit for index, (_, _, hit, _) in enumerate(drawn)}
    view = ScriptedView(table([load.entry for load in loads.values()], policy="lodestar"), loads, hits)
    view.load_of_pool = load
    model = None if by is None else bounded(sum_of(by), prefill_tokens=(100, 15_000))
    policy = lodestar(
        model, view, near_best=near, mode="Shadow" if shadow else "Active", out_of_distribution=scope, exploration=exploration
    )
    WatchedPolicy(policy, Counter()).choose(replace(request("r"), blocks=(3, 4)), view, 0.0)
