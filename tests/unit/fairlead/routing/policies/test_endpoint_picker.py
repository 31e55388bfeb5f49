"""The policy that runs an EndpointPickerConfig."""

from typing import Any

import pytest

from fairlead.errors import InvalidInput
from fairlead.reports.bindings import Binding, BindingReason
from fairlead.reports.moves import MoveCause
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.tables import RoutingFacts
from fairlead_testing.builders.routing import POOL, ScriptedView, cause, left, load_of, request, table

FILE = {
    "apiVersion": "llm-d.ai/v1alpha1",
    "kind": "EndpointPickerConfig",
    "plugins": [
        {"type": "queue-scorer"},
        {"type": "prefix-cache-scorer"},
        {"type": "session-affinity-scorer", "parameters": {"strategy": "session_id"}},
        {"type": "utilization-filter", "parameters": {"conditions": [{"metric": "waiting-queue", "maxValue": 8}]}},
        {"type": "max-score-picker", "parameters": {"maxNumOfEndpoints": 2}},
    ],
    "schedulingProfiles": [
        {
            "name": "default",
            "plugins": [
                {"pluginRef": "utilization-filter"},
                {"pluginRef": "queue-scorer", "weight": 1},
                {"pluginRef": "prefix-cache-scorer", "weight": 2},
                {"pluginRef": "session-affinity-scorer", "weight": 3},
                {"pluginRef": "max-score-picker"},
            ],
        }
    ],
}

PLUGINS = [
    {"pluginRef": "utilization-filter"},
    {"pluginRef": "queue-scorer", "weight": 1},
    {"pluginRef": "prefix-cache-scorer", "weight": 4},
    {"pluginRef": "max-score-picker"},
]


def policy(config: dict[str, Any] | None = None) -> Any:
    return BUILT_IN.build(RoutingFacts(policy="endpoint-picker", parameters={} if config is None else {"config": config}), 1)


def view(home: str | None = None) -> ScriptedView:
    """Return a view in which a has the longest queue and is filtered out, b holds half of the prompt, and c is idle."""
    loads = {name: load_of(name, waiting=waiting) for name, waiting in (("a", 9), ("b", 4), ("c", 0))}
    bindings = {}
    if home is not None:
        bindings["s"] = Binding(pool=POOL, session="s", instance=home, version=1, reason=BindingReason.COLD, bound_at=0.0, migrated_at=None)
    return ScriptedView(table([load.entry for load in loads.values()]), loads, {("r", "a"): 5119, ("r", "b"): 2560}, bindings)


def test_the_file_decides_and_the_decision_shows_each_plugins_part() -> None:
    decision = policy(FILE).choose(request("r", 5120, session="s"), view("b"), 0.0)
    assert (decision.instance, decision.fallbacks) == ("b", ("c",))
    weighed = decision.weigh()
    assert weighed.rule == "best-passing"
    assert {one.instance: one.total for one in weighed.candidates} == {"b": pytest.approx(4.0), "c": pytest.approx(1.0)}
    shown = weighed.candidates[0].terms
    assert (shown["queue_score"], shown["prefix_score"], shown["session_score"]) == (0.0, 1.0, 3.0)
    assert sum(shown.values()) == pytest.approx(4.0)


def test_sessions_are_bound_where_a_plugin_goes_by_them_and_only_then() -> None:
    with_sessions, without = policy(FILE), policy()
    assert (with_sessions.binds, without.binds) == (True, False)


@pytest.mark.parametrize(("home", "why"), [("a", cause("filtered-out")), ("b", None), ("c", cause("best-score", 2.0, 1.5, "score"))])
def test_a_home_is_left_for_a_better_score_or_because_it_was_filtered_out(home: str, why: MoveCause | None) -> None:
    file = FILE | {
        "schedulingProfiles": [{"name": "default", "plugins": [*PLUGINS, {"pluginRef": "session-affinity-scorer", "weight": 0.5}]}]
    }
    assert left(policy(file), request("r", 5120, session="s"), view(home)) == why


def test_the_next_best_are_recorded_also_when_one_alone_is_picked() -> None:
    decision = policy().choose(request("r", 5120), view(), 0.0)
    assert decision.fallbacks == ()
    assert len(decision.candidates) == 3


def test_a_bad_file_is_refused_where_the_pool_is_read() -> None:
    with pytest.raises(InvalidInput, match="'speed-scorer' cannot be used; the types of plugins are") as refused:
        BUILT_IN.check_parameters("endpoint-picker", {"config": FILE | {"plugins": [{"type": "speed-scorer"}]}})
    assert refused.value.field == "spec.routing.parameters.config.plugins[0].type"
