"""Engines' speeds are read from `fairlead.capabilities`: any other reader of a declared speed must give its reason."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("core", "controlplane", "operator", "router", "simulator", "webui", "cli", "host", "sandbox", "serve")
FIELD = "prefill_tokens_per_second"
DECLARES = "carries what is declared, and decides nothing by it"
TRUTH = "of simulated engines it is the speed that they have"
OBSERVED = "only reads a figure with its source, or one that was measured"
ALLOWED = {
    "controlplane/fairlead_api/plans/hand_overs.py": OBSERVED,
    "controlplane/fairlead_api/advice/asking.py": OBSERVED,
    "controlplane/fairlead_api/advice/sizing.py": OBSERVED,
    "controlplane/fairlead_api/plans/kinds/scale.py": OBSERVED,
    "controlplane/fairlead_api/pools/capabilities.py": OBSERVED,
    "controlplane/fairlead_api/simulations/asking.py": OBSERVED,
    "controlplane/fairlead_api/simulations/processes.py": OBSERVED,
    "controlplane/fairlead_api/plans/store/evidence.py": OBSERVED,
    "core/fairlead/pools.py": DECLARES,
    "core/fairlead/reconciling/round_plan.py": OBSERVED,
    "core/fairlead/routing/knowledge/engine_memories.py": OBSERVED,
    "core/fairlead/routing/knowledge/estimators.py": "the home of what routers measure; goes by the declared speed until then",
    "core/fairlead/routing/scheduling/learning.py": OBSERVED,
    "core/fairlead/routing/scheduling/table_changes.py": "a change of it leaves what was measured as it is",
    "core/fairlead/scaling/sizing.py": OBSERVED,
    "core/fairlead/table_content.py": DECLARES,
    "core/fairlead/tables.py": "makes a figure of it, whose source is `declared`",
    "operator/fairlead_operator/pod_templates.py": TRUTH,
    "operator/fairlead_operator/reconciling/roles.py": OBSERVED,
    "router/fairlead_router/pools/pool.py": DECLARES,
    "router/fairlead_router/pools/known_engines.py": OBSERVED,
    "router/fairlead_router/reporting/learnt_figures.py": "tells it beside what was measured",
    "simulator/fairlead_simulator/simulate_command.py": "says what routers are told",
    "simulator/fairlead_simulator/simulation/autoscaling.py": "makes a figure of it, whose source is `declared`",
    "simulator/fairlead_simulator/simulation/pools.py": DECLARES,
    "simulator/fairlead_simulator/what_if.py": "the job has the best figure, and its source",
}


def readers() -> set[str]:
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            if FIELD in text and any(
                isinstance(node, ast.Attribute) and node.attr == FIELD and isinstance(node.ctx, ast.Load)
                for node in ast.walk(ast.parse(text))
            ):
                found.add(str(path.relative_to(ROOT)))
    return found


def test_nobody_else_goes_by_the_speed_that_a_pool_declares() -> None:
    assert readers() == ALLOWED.keys(), "ask fairlead.capabilities for the best figure; `Figure.observed` is None of a declared one"
