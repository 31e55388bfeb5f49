"""What a process loads before it can do anything: whoever routes nothing must not wait for numpy and the policies."""

import subprocess
import sys

import pytest

READ_A_SPEC = """
from fairlead.pools import parse_spec
from fairlead.routing.policies.catalogue import check_parameters
spec = parse_spec({"model": "m", "routing": {"policy": "dualmap", "parameters": {"slo_fraction": 0.5}}})
check_parameters(spec.routing.policy, spec.routing.parameters)
"""

DATA_ONLY = {"catalogue", "policy_parameters", "key_parameters", "prefix_hotness"}
"""Modules beside the policies that say what may be asked for."""


def modules_after(code: str) -> set[str]:
    """Names of the modules a new interpreter has loaded after `code`."""
    script = f"{code}\nimport sys\nprint(*sys.modules, sep='\\n')"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return set(answer.stdout.splitlines())


@pytest.mark.parametrize("code", [READ_A_SPEC, "import fairlead_operator.main", "import fairlead_api.app"])
def test_a_spec_is_read_without_loading_numpy_or_any_policy(code: str) -> None:
    loaded = modules_after(code)
    assert "fairlead.pools" in loaded
    assert "numpy" not in loaded
    assert {name.rpartition(".")[2] for name in loaded if name.startswith("fairlead.routing.policies.")} <= DATA_ONLY
