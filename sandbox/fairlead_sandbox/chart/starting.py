"""One run of `fairlead up --chart`."""

import asyncio
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from typing import TextIO

from fairlead_process.environment import read
from fairlead_sandbox.chart.helm import chart_folder, library_folders
from fairlead_sandbox.chart.process_table import PREFERRED_PORTS, ChartPlan, chart_table
from fairlead_sandbox.chart.setup import ChartSetup
from fairlead_sandbox.chart.values import machine_values
from fairlead_sandbox.cluster_setup import ClusterSetup
from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.ports import HOST, PortClaims, claim_ports
from fairlead_sandbox.process_table import METRICS_PORT_OF_PODS
from fairlead_sandbox.processes import ProcessSpec
from fairlead_sandbox.runs import PreparedRun, SupervisedRun
from fairlead_sandbox.secret_tokens import load_or_create
from fairlead_sandbox.settings import SandboxSettings, kubernetes_variables, strange
from fairlead_sandbox.starting import UpOptions, engine_port, port_notices
from fairlead_sandbox.state_directory import StateDirectory
from fairlead_sandbox.summary import StartReport, activate_script, make_login_link, render
from processkube.kubelet.enclosing import can_enclose


class ChartRun:
    """One run. `output` gets progress, summary and the merged log; it is None if detached."""

    def __init__(self, options: UpOptions, environment: Mapping[str, str], output: TextIO | None) -> None:
        self._options = options
        self._environment = environment
        self._directory = StateDirectory(root=options.state_dir)
        self._run = SupervisedRun(self._directory, environment, output, self._prepare)

    async def run(self) -> None:
        """Start everything, serve until SIGINT or SIGTERM, then stop everything. Raises the errors of `SandboxRun`."""
        await self._run.run()

    async def _prepare(self, known: Mapping[str, int]) -> PreparedRun:
        settings = read(SandboxSettings, self._environment)
        for name, value in {"FAIRLEAD_DATABASE_URL": settings.database_url, "FAIRLEAD_KUBECONFIG": settings.kubeconfig}.items():
            if value:
                raise SandboxError(f"{name}: --chart brings its own Postgres and Kubernetes API; unset it, or install the chart by Helm")
        library_folders()
        if not await asyncio.to_thread(can_enclose):
            raise SandboxError(
                "--chart needs user and mount namespaces, which this machine forbids; allow them "
                "(on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0), or leave --chart out"
            )
        self._directory.claim_for_chart()
        claims = claim_ports({name: known.get(name, port) for name, port in PREFERRED_PORTS.items()})
        try:
            return self._planned(claims, known, settings.node_grace_seconds)
        except BaseException:
            claims.release()
            raise

    def _planned(self, claims: PortClaims, known: Mapping[str, int], node_grace_seconds: float) -> PreparedRun:
        directory, options = self._directory, self._options
        ports = claims.ports | {"engine": engine_port()}
        values = machine_values(options.counts, api_port=ports["api"], gateway_port=ports["router"])
        cluster = ClusterSetup(directory, engine_port=ports["engine"])
        plan = ChartPlan(
            directory=directory,
            ports=ports,
            node_grace_seconds=node_grace_seconds,
            kubernetes_variables=kubernetes_variables(self._environment),
            demo=options.demo,
            load=options.load,
            setup=ChartSetup(directory, values, chart_folder()),
            publish_kubeconfig=cluster.publish_kubeconfig,
            apply_demo=cluster.apply_demo,
        )
        nodes = chart_table(plan)
        notices = port_notices(ports, PREFERRED_PORTS, known)
        notices += strange(self._environment, [node for node in nodes if isinstance(node, ProcessSpec)])
        urls = {**plan.urls, "kubernetes-api": f"https://{HOST}:{ports['kubernetes-api']}"}
        return PreparedRun(nodes=nodes, ports=ports, urls=urls, claims=claims, summary=partial(self._summary, plan, tuple(notices)))

    async def _summary(self, plan: ChartPlan, notices: tuple[str, ...]) -> Callable[[bool], str]:
        facts = StartReport(
            dashboards=(plan.urls["api"],),
            login_link=await make_login_link((plan.urls["api"],), load_or_create(self._directory.secrets).admin),
            gateways=(plan.urls["router"],),
            metrics=tuple(f"http://{address}:{METRICS_PORT_OF_PODS}/metrics" for address in await plan.setup.router_addresses()),
            kubeconfig=self._directory.kubeconfig,
            state_dir=self._directory.root,
            demo=plan.demo,
            detached=self._options.detached,
            activate=activate_script(),
            notices=notices,
            gateway_key=plan.setup.gateway_key,
        )
        width = shutil.get_terminal_size((100, 30)).columns
        return lambda coloured: render(facts, width=width, coloured=coloured)
