"""A policy outside this repository, installed as a package, routes in a router process and in the simulator.

The operator knows it, too.
"""

import asyncio
import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import httpx
import pytest

from fairlead_simulator.traces.rows import write_trace
from fairlead_simulator.workloads.kinds import KINDS
from fairlead_testing.fakes.system_api import ROUTER_TOKEN
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import World
from processkube.testing.ports import free_port

POLICY = '''
"""Sends everything to one instance, counted from the end of the list."""

from dataclasses import dataclass

from fairlead.routing.choosing.candidates import nothing, weighed
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.weighing import PolicyTerms, DecisionRule
from fairlead.schemas.shapes import whole


@dataclass(frozen=True, slots=True, kw_only=True)
class FromEndParameters(QueueParameters):
    place: int = whole("Which instance, counted from the last.", 1, minimum=1, maximum=8)


class FromEnd:
    name = "from-end"

    def __init__(self, parameters):
        self._place = parameters.place

    def choose(self, request, view, now):
        loads = view.candidates()
        chosen = loads[-min(self._place, len(loads))].entry.id
        weigh = weighed(request, view, "counted", (chosen,), nothing)
        return Decision(instance=chosen, reason=DecisionReason.ROUND_ROBIN, weigh=weigh)


ENTRY = PolicyEntry(
    name=FromEnd.name,
    intent="One instance, counted from the end.",
    build=lambda parameters, seed: FromEnd(parameters),
    parameters=FromEndParameters,
    terms=PolicyTerms(rules=(DecisionRule(code="counted", because="it stands at that place"),)),
)
'''
JUDGE = """
import json, sys
from fairlead_operator.reconciling.specs import AcceptedSpecs, read_spec_in_force
from fairlead_process.policies import installed_policies
pool = {"metadata": {"generation": 1}, "spec": {"model": "m", "routing": json.loads(sys.argv[1])}}
problem = read_spec_in_force(pool, AcceptedSpecs(installed_policies())).problem
print("" if problem is None else f"{problem.reason}: {problem.message}")
"""


def installed(directory: Path, entry_points: str) -> dict[str, str]:
    """Return the environment of a process that has the package.

    Its module and its metadata are on the path, as pip installs them.
    """
    metadata = directory / "acme_policies-1.0.dist-info"
    metadata.mkdir(parents=True)
    (directory / "acme_policies.py").write_text(POLICY)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-policies\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[fairlead.policies]\n{entry_points}\n")
    (metadata / "RECORD").write_text("acme_policies.py,,\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return installed(tmp_path / "site", "from-end = acme_policies:ENTRY")


async def is_ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).status_code == 200
    except httpx.HTTPError:
        return False  # not listening yet


def judged(environment: dict[str, str], **routing: object) -> str:
    """Return the operator's message about a pool with this routing; "" when it accepts the pool."""
    command = [sys.executable, "-c", JUDGE, json.dumps(routing)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True).stdout.strip()


async def test_a_router_process_routes_by_an_installed_policy(world: World, environment: dict[str, str]) -> None:
    await world.start_engines(3)
    world.api.state.set_table(world.table(policy="from-end", parameters={"place": 2}))
    port = free_port()
    own = {
        "FAIRLEAD_API_URL": world.api.url,
        "FAIRLEAD_API_TOKEN": ROUTER_TOKEN,
        "FAIRLEAD_ROUTER_ID": "router-0",
        "FAIRLEAD_SPOOL_DIR": str(world.directory / "router-0"),
    }
    command = (sys.executable, "-m", "fairlead_router.main", "--port", str(port), "--admin-port", "0")
    process = await asyncio.create_subprocess_exec(*command, env=environment | own)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_SECONDS) as client:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await is_ready(client):
                    await asyncio.sleep(0.05)
            prompts = [{"model": "mock", "prompt": f"p{number}", "max_tokens": 3} for number in range(4)]
            answers = [await client.post("/v1/completions", json=prompt) for prompt in prompts]
    finally:
        process.terminate()
        await process.wait()
    assert [(answer.status_code, answer.headers["x-fairlead-instance"]) for answer in answers] == [(200, "i1")] * 4


def test_the_simulator_runs_an_installed_policy_with_its_parameters(environment: dict[str, str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    with trace.open("w") as file:
        write_trace(islice(KINDS["conversation"].rows(None, None, 3), 60), file)

    def simulate(policy: str) -> subprocess.CompletedProcess[str]:
        options = f"--instances 3 --rates 1 --seeds 1 --policies {policy} --trace {trace} --json {tmp_path / 'rows.json'}"
        command = [sys.executable, "-m", "fairlead_cli.main", "simulate", *options.split()]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)

    result = simulate("from-end:place=3")
    assert result.returncode == 0, result.stderr
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert row["policy"] == "from-end:place=3"
    assert row["load_cv"] == pytest.approx(2**0.5, abs=0.01), "all load is on one of three instances"
    refused = simulate("from-end:place=9")
    assert refused.returncode != 0
    assert "from-end: place: 9" in refused.stderr.replace("\n", " ")


def test_the_operator_knows_an_installed_policy_and_its_parameters(environment: dict[str, str]) -> None:
    assert judged(environment, policy="from-end", parameters={"place": 8}) == ""
    assert judged(environment, policy="from-end", parameters={"place": 9}).startswith(
        "InvalidRouting: spec.routing.parameters.place: 9 cannot be used"
    )


def test_the_operator_names_the_policies_it_knows_when_one_is_not_installed() -> None:
    told = judged(dict(os.environ), policy="from-end")
    assert told.startswith("InvalidRouting: spec.routing.policy: 'from-end' cannot be used; choose one of cache-affinity, ")
    assert "fairlead" in told


def test_a_package_that_cannot_be_loaded_or_misnames_its_policy_is_told_in_one_line(tmp_path: Path) -> None:
    broken = installed(tmp_path / "broken", "from-end = acme_policies:NOTHING")
    told = judged(broken, policy="from-end")
    assert told.startswith("InvalidRouting: spec.routing.policy: 'from-end' cannot be used; its package cannot be loaded (AttributeError(")
    misnamed = installed(tmp_path / "misnamed", "from-start = acme_policies:ENTRY")
    assert "its entry point must name a PolicyEntry called from-start" in judged(misnamed, policy="from-start")
    assert judged(misnamed, policy="dualmap") == "", "other pools do not suffer"
