import numpy as np
import pytest

from fairlead.instances import InstanceState
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.choosing.pickers import best
from fairlead.routing.choosing.scorers import loads, prefixes
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.policies.heimdall import Heimdall, HeimdallParameters
from fairlead_testing.builders.routing import ScriptedView, entry, request, table

WAITING = np.array([0, 4, 8])
USAGE = np.array([0.2, 0.5, 0.9])
MATCHED = np.array([0, 250, 250])


def pool(parameters: HeimdallParameters) -> tuple[Heimdall, ScriptedView]:
    """Return the worked example: 9,000 tokens in blocks of 32, with a system prompt of 8,000 tokens on P2 and P3."""
    found = {
        name: InstanceLoad(entry=entry(name), waiting=int(waiting), kv_usage=float(usage))
        for name, waiting, usage in zip(("p1", "p2", "p3"), WAITING, USAGE, strict=True)
    }
    of = table([load.entry for load in found.values()], policy="heimdall", block_tokens=32)
    return Heimdall(parameters, 1), ScriptedView(of, found, {("r", "p2"): 8_000, ("r", "p3"): 8_000})


def test_the_worked_example_scores_each_aspect() -> None:
    assert loads.short_queue(WAITING).tolist() == [1.0, 0.5, 0.0]
    assert loads.free_kv(USAGE).tolist() == pytest.approx([0.8, 0.5, 0.1])
    assert prefixes.absolute(MATCHED, 281).tolist() == pytest.approx([0, 0.8897, 0.8897], abs=1e-4)
    assert prefixes.minmax(MATCHED).tolist() == [0.0, 1.0, 1.0]


def test_the_worked_example_picks_p2_and_then_p1() -> None:
    policy, view = pool(HeimdallParameters(max_endpoints=2))
    decision = policy.choose(request("r", 9_000), view, 0.0)
    assert (decision.instance, decision.fallbacks) == ("p2", ("p1",))
    assert [one.total for one in decision.candidates] == pytest.approx([4.669, 3.6], abs=1e-3)


def test_the_worked_example_with_minmax() -> None:
    policy, view = pool(HeimdallParameters(preset="heimdall-minmax", max_endpoints=3))
    decision = policy.choose(request("r", 9_000), view, 0.0)
    assert (decision.instance, decision.fallbacks) == ("p2", ("p1", "p3"))
    assert [one.total for one in decision.candidates][:2] == pytest.approx([5.0, 3.6])


def test_minmax_gives_a_single_block_the_full_score_and_absolute_does_not() -> None:
    assert prefixes.minmax(np.array([0, 1])).tolist() == [0.0, 1.0]
    assert prefixes.minmax(np.array([2, 4, 3])).tolist() == [0.0, 1.0, 0.5]
    assert prefixes.minmax(np.array([0, 0])).tolist() == [0.0, 0.0]
    assert prefixes.absolute(np.array([0, 1]), 100).tolist() == [0.0, 0.01]
    assert prefixes.absolute(np.array([0]), 0).tolist() == [0.0]


def test_equal_queues_all_score_one() -> None:
    assert loads.short_queue(np.array([3, 3])).tolist() == [1.0, 1.0]


def test_the_picker_shuffles_ties_and_picks_at_least_one() -> None:
    totals = np.array([1.0, 2.0, 2.0])
    assert {best(totals, 1, Dice(seed))[0] for seed in range(20)} == {1, 2}
    assert len(best(totals, 0, Dice(1))) == 1
    assert best(totals, 3, Dice(1))[2] == 0


def test_a_fully_cached_prompt_matches_all_its_blocks() -> None:
    policy, view = pool(HeimdallParameters(queue_weight=0, kv_weight=0))
    view.hits[("r", "p3")] = 9_000
    exact = policy.choose(request("r", 8_992), view, 0.0)
    assert (exact.instance, exact.candidates[0].total) == ("p3", 3.0)


def test_without_readings_of_the_engine_kv_usage_is_what_runs_there() -> None:
    policy, view = pool(HeimdallParameters(queue_weight=0, prefix_weight=0))
    for load in view.loads.values():
        load.kv_usage = None
    view.loads["p1"].decode_tokens = 600_000
    view.loads["p2"].decode_tokens = 100_000
    assert policy.choose(request("r", 9_000), view, 0.0).instance == "p3"


def test_only_accepting_instances_are_scored() -> None:
    policy, view = pool(HeimdallParameters())
    view.loads["p2"] = InstanceLoad(entry=entry("p2", InstanceState.DRAINING))
    decision = policy.choose(request("r", 9_000), view, 0.0)
    assert "p2" not in (decision.instance, *decision.fallbacks)
