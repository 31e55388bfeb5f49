"""`fairlead up --chart`: the values it gives the chart, the processes it starts, and the conditions it waits for."""

import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead_sandbox.chart import helm
from fairlead_sandbox.chart.process_table import ChartPlan, chart_table
from fairlead_sandbox.chart.setup import ChartSetup, is_rolled_out
from fairlead_sandbox.chart.starting import ChartRun
from fairlead_sandbox.chart.values import machine_values
from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.process_table import ProcessCounts
from fairlead_sandbox.processes import ProcessSpec, in_start_order
from fairlead_sandbox.starting import UpOptions
from fairlead_sandbox.state_directory import StateDirectory

DIRECTORY = StateDirectory(root=Path("/s"))


async def nothing() -> None:
    pass


def a_plan() -> ChartPlan:
    return ChartPlan(
        directory=DIRECTORY,
        ports={"kubernetes-api": 6443, "api": 8080, "router": 8000},
        node_grace_seconds=10.0,
        kubernetes_variables={"PROCESSKUBE_LOG_LEVEL": "INFO"},
        demo=True,
        load=True,
        setup=ChartSetup(DIRECTORY, {}, Path("/chart")),
        publish_kubeconfig=nothing,
        apply_demo=nothing,
    )


def test_of_fairleads_own_processes_only_the_load_is_started_beside_the_chart() -> None:
    nodes = in_start_order(chart_table(a_plan()))
    processes = [node.name for node in nodes if isinstance(node, ProcessSpec)]
    assert sorted(processes) == ["kubelet", "kubernetes-api", "load", "service-proxy"]
    names = [node.name for node in nodes]
    assert names.index("chart") > max(names.index("kubelet"), names.index("service-proxy"))


def test_the_load_shows_the_key_that_the_chart_made() -> None:
    plan = a_plan()
    (load,) = [node for node in chart_table(plan) if isinstance(node, ProcessSpec) and node.name == "load"]
    assert dict(load.environment) == {}
    plan.setup.client_variables["FAIRLEAD_GATEWAY_KEY"] = "k"
    assert load.environment == {"FAIRLEAD_GATEWAY_KEY": "k"}


def test_the_charts_services_are_reached_at_the_machines_ports() -> None:
    values = machine_values(ProcessCounts(routers=3), api_port=8081, gateway_port=8005)
    assert values["api"]["service"] == {"type": "LoadBalancer", "port": 8081}
    assert values["api"]["publicUrl"] == "http://127.0.0.1:8081"
    assert values["router"] == {"replicas": 3, "service": {"type": "LoadBalancer", "port": 8005}}


def a_workload(kind: str = "Deployment", **status: int) -> dict[str, Any]:
    usual = {"observedGeneration": 2, "updatedReplicas": 2, "replicas": 2, "availableReplicas": 2, "readyReplicas": 2}
    return {"kind": kind, "metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": usual | status}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_workload_runs_when_all_its_pods_are_new_and_ready(kind: str) -> None:
    assert is_rolled_out(a_workload(kind))
    assert not is_rolled_out(a_workload(kind, observedGeneration=1)), "its controller has not seen the change"
    assert not is_rolled_out(a_workload(kind, updatedReplicas=1))
    assert not is_rolled_out(a_workload(kind, replicas=3)), "an old pod is still there"
    assert not is_rolled_out(a_workload(kind, availableReplicas=1, readyReplicas=1))
    assert not is_rolled_out({**a_workload(kind), "status": {}})


def test_without_helms_library_one_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helm, "_LIBRARY", "no_such_library")
    with pytest.raises(
        SandboxError, match=r"^--chart needs Helm's library, which is not installed: .*ensure-helm.sh.*pip install helm-sdkpy"
    ):
        helm.library_folders()


def test_the_chart_is_found() -> None:
    assert (helm.chart_folder() / "values.yaml").is_file()


@pytest.mark.parametrize("name", ["FAIRLEAD_DATABASE_URL", "FAIRLEAD_KUBECONFIG"])
@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
async def test_what_the_chart_brings_itself_is_not_taken_from_the_environment(name: str, tmp_path: Path) -> None:
    run = ChartRun(UpOptions(state_dir=tmp_path), {name: "postgresql://a@b/c"}, None)
    with pytest.raises(SandboxError, match=f"^{name}: --chart brings its own Postgres and Kubernetes API; unset it"):
        await run.run()
