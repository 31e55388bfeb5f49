"""Modules that a process loads at its start: processes that do not route must not load numpy and the policies."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead_testing.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]

READ_A_SPEC = """
from fairlead.pools import parse_spec
from fairlead.routing.policies.catalogue import BUILT_IN
spec = parse_spec({"model": "m", "routing": {"policy": "dualmap", "parameters": {"slo_fraction": 0.5}}})
"""
CHECK_ITS_POLICY = f"{READ_A_SPEC}\nBUILT_IN.check_parameters(spec.routing.policy, spec.routing.parameters)"


def modules_after(code: str) -> set[str]:
    """Return the names of the modules that a new interpreter has loaded after `code`."""
    script = f"{code}\nimport sys\nprint(*sys.modules, sep='\\n')"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    return set(answer.stdout.splitlines())


def policies_loaded(loaded: set[str]) -> set[str]:
    """Return the names of loaded modules that are policies."""
    parts = [name.rpartition(".") for name in loaded]
    return {module for package, _, module in parts if package == "fairlead.routing.policies"} - {"catalogue"}


@pytest.mark.parametrize("code", [READ_A_SPEC, "import fairlead_operator.main", "import fairlead_api.app"])
def test_a_spec_is_read_without_loading_numpy_or_any_policy(code: str) -> None:
    loaded = modules_after(code)
    assert "fairlead.pools" in loaded
    assert "numpy" not in loaded
    assert policies_loaded(loaded) == set()


def test_checking_a_pools_parameters_loads_its_policy_and_no_other() -> None:
    assert policies_loaded(modules_after(CHECK_ITS_POLICY)) == {"dualmap"}


FLOORS = (
    {"fairlead", "processkube"},
    {"fairlead_client", "fairlead_process"},
    {"fairlead_api", "fairlead_operator", "fairlead_router", "fairlead_simulator", "fairlead_web"},
    {"fairlead_host"},
    {"fairlead_sandbox"},
    {"fairlead_cli"},
)


def test_no_string_names_a_module_that_its_package_must_not_import() -> None:
    floor = {package: number for number, packages in enumerate(FLOORS) for package in packages}
    hidden = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for package, number in floor.items()
        for path in next(iter([*ROOT.glob(f"*/{package}"), *ROOT.glob(f"*/src/{package}")])).rglob("*.py")
        for source in [path.read_text(encoding="utf-8")]
        if re.search(r"""["'}]fairlead_\w""", source)  # parsing all files takes seconds
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"fairlead_\w+(\.\w+)*", node.value)
        for named in [node.value.partition(".")[0]]
        if named in floor and named != package and floor[named] >= number
    ]
    assert hidden == []


def test_the_control_api_is_imported_without_alembic() -> None:
    assert not {name for name in modules_after("import fairlead_api.app") if name.partition(".")[0] == "alembic"}
