"""The processes and steps of `fairlead up --chart`: first the cluster's own, then the chart's pods."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from fairlead_process.environment import names
from fairlead_process.logs import OnlyLogs
from fairlead_process.starting import FaultSettings
from fairlead_sandbox.chart.setup import ChartSetup
from fairlead_sandbox.ports import HOST
from fairlead_sandbox.process_table import (
    FIRST_API_PORT,
    FIRST_ROUTER_PORT,
    KUBERNETES_PORT,
    kubelet_process,
    kubernetes_api_process,
    load_process,
    python_module,
)
from fairlead_sandbox.processes import Node, PrintedLine, ProcessSpec, Step
from fairlead_sandbox.state_directory import StateDirectory

PREFERRED_PORTS = {"kubernetes-api": KUBERNETES_PORT, "api": FIRST_API_PORT, "router": FIRST_ROUTER_PORT}

WORKLOADS = {"postgres": "statefulsets", "api": "deployments", "operator": "deployments", "router": "statefulsets"}
"""The chart's workload (kind and name) for each process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartPlan:
    """The choices from which the table of processes is made. The steps of the table are given as functions."""

    directory: StateDirectory
    ports: dict[str, int]
    node_grace_seconds: float
    kubernetes_variables: Mapping[str, str]
    demo: bool
    load: bool
    setup: ChartSetup
    publish_kubeconfig: Callable[[], Awaitable[None]]
    apply_demo: Callable[[], Awaitable[None]]

    @property
    def urls(self) -> dict[str, str]:
        """URLs of the control API and the gateway, as the service proxy offers them."""
        return {name: f"http://{HOST}:{self.ports[name]}" for name in ("api", "router")}


def chart_table(plan: ChartPlan) -> tuple[Node, ...]:
    """Return all processes and steps of the plan."""
    nodes: list[Node] = [
        kubernetes_api_process(plan.directory, plan.ports["kubernetes-api"], plan.node_grace_seconds, plan.kubernetes_variables),
        Step(name="kubeconfig", run=plan.publish_kubeconfig, needs=("kubernetes-api",)),
        kubelet_process(plan.directory, plan.kubernetes_variables),
        _service_proxy(plan.directory, plan.kubernetes_variables),
        Step(name="chart", run=plan.setup.install, needs=("kubelet", "service-proxy")),
        *(Step(name=process, run=plan.setup.until_it_runs(kind, process), needs=("chart",)) for process, kind in WORKLOADS.items()),
    ]
    if plan.demo:
        nodes.append(Step(name="demo-pool", run=plan.apply_demo, needs=tuple(WORKLOADS)))
    if plan.load:
        nodes.append(load_process((plan.urls["router"],), needs=("demo-pool", "router"), environment=plan.setup.client_variables))
    return tuple(nodes)


def _service_proxy(directory: StateDirectory, variables: Mapping[str, str]) -> ProcessSpec:
    arguments = ("--kubeconfig", str(directory.kubernetes / "kubeconfig-kubelet"), "--state-dir", str(directory.kubernetes))
    return ProcessSpec(
        name="service-proxy",
        command=python_module("processkube.service_proxy.main", *arguments),
        readiness=PrintedLine(prefix="ready "),
        reads=names(OnlyLogs, FaultSettings),
        environment=variables,
        needs=("kubeconfig",),
    )
