"""`fairlead up`: one run of the sandbox, from taking the lock to the end of the last process."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

from fairlead_process.environment import read
from fairlead_sandbox.cluster_setup import ClusterSetup
from fairlead_sandbox.clusters import server_of
from fairlead_sandbox.ports import HOST, PortClaims, claim_ports, first_free
from fairlead_sandbox.postgres import check_external, embedded_server
from fairlead_sandbox.process_table import ProcessCounts, SandboxPlan, preferred_ports, process_table
from fairlead_sandbox.processes import ProcessSpec
from fairlead_sandbox.runs import PreparedRun, SupervisedRun
from fairlead_sandbox.secret_tokens import load_or_create
from fairlead_sandbox.settings import SandboxSettings, kubernetes_variables, strange
from fairlead_sandbox.state_directory import StateDirectory
from fairlead_sandbox.summary import StartReport, activate_script, make_login_link, render

ENGINE_PORT = 8000
UNUSED_LOOPBACK = "127.39.255.254"
"""A loopback address on which no process listens explicitly.

If a port is taken on this address, a process listens on that port of all addresses (0.0.0.0).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """The options of `fairlead up`."""

    state_dir: Path
    counts: ProcessCounts = ProcessCounts()  # noqa: RUF009 - frozen
    demo: bool = True
    load: bool = True
    detached: bool = False


class SandboxRun:
    """One run. `output` gets progress, summary and the merged log; it is None if detached."""

    def __init__(self, options: UpOptions, environment: Mapping[str, str], output: TextIO | None) -> None:
        self._options = options
        self._environment = environment
        self._directory = StateDirectory(root=options.state_dir)
        self._run = SupervisedRun(self._directory, environment, output, self._prepare)

    async def run(self) -> None:
        """Start everything, serve until SIGINT or SIGTERM, stop everything.

        Raises AlreadyRunning when the directory is held, SandboxError or StartFailed when the start fails;
        nothing is left running then.
        """
        await self._run.run()

    async def _prepare(self, known: Mapping[str, int]) -> PreparedRun:
        """Choose ports, secrets and database. Raises SandboxError if one of them is not available."""
        options = self._options
        self._directory.refuse_chart()
        wishes = preferred_ports(options.counts)
        claims = claim_ports({name: known.get(name, port) for name, port in wishes.items()})
        try:
            return await self._planned(claims, wishes, known)
        except BaseException:
            claims.release()
            raise

    async def _planned(self, claims: PortClaims, wishes: Mapping[str, int], known: Mapping[str, int]) -> PreparedRun:
        options, directory = self._options, self._directory
        ports = claims.ports | {"engine": engine_port()}
        notices = port_notices(ports, wishes, known)
        settings = read(SandboxSettings, self._environment)
        external = settings.database_url
        postgres = None if external else embedded_server(data=directory.postgres_data, socket_directory=directory.socket_directory)
        cluster = Path(settings.kubeconfig) if settings.kubeconfig else None
        setup = ClusterSetup(directory, engine_port=ports["engine"], cluster=cluster)
        plan = SandboxPlan(
            directory=directory,
            ports=ports,
            counts=options.counts,
            tokens=load_or_create(directory.secrets),
            database_url=postgres.url if postgres else await check_external(external),
            postgres=postgres,
            own_kubernetes=cluster is None,
            node_grace_seconds=settings.node_grace_seconds,
            kubernetes_variables=kubernetes_variables(self._environment),
            demo=options.demo,
            load=options.load,
            publish_kubeconfig=setup.publish_kubeconfig,
            apply_definitions=setup.apply_definitions,
            apply_demo=setup.apply_demo,
        )
        own = f"https://{HOST}:{ports['kubernetes-api']}"
        kubernetes = {"kubernetes-api": own if cluster is None else server_of(cluster)}
        nodes = process_table(plan)
        notices += strange(self._environment, [node for node in nodes if isinstance(node, ProcessSpec)])
        urls = {**plan.api_urls, **plan.router_urls, **kubernetes, **plan.metrics_urls}
        return PreparedRun(nodes=nodes, ports=ports, urls=urls, claims=claims, summary=partial(self._summary, plan, tuple(notices)))

    async def _summary(self, plan: SandboxPlan, notices: tuple[str, ...]) -> Callable[[bool], str]:
        link = await make_login_link(tuple(plan.api_urls.values()), plan.tokens.admin)
        facts = StartReport(
            dashboards=tuple(plan.api_urls.values()),
            login_link=link,
            gateways=tuple(plan.router_urls.values()),
            metrics=tuple(plan.metrics_urls.values()),
            kubeconfig=self._directory.kubeconfig,
            state_dir=self._directory.root,
            demo=plan.demo,
            detached=self._options.detached,
            activate=activate_script(),
            notices=notices,
        )
        width = shutil.get_terminal_size((100, 30)).columns
        return lambda coloured: render(facts, width=width, coloured=coloured)


def engine_port() -> int:
    """Return the port of the demo's engines. The port is not claimed, because sandboxes share it: the engines of each
    sandbox listen on other loopback addresses.
    """
    return first_free("engine", ENGINE_PORT, UNUSED_LOOPBACK)


def port_notices(ports: Mapping[str, int], wishes: Mapping[str, int], known: Mapping[str, int]) -> list[str]:
    """Return one line for each port that is neither the preferred port nor the port of the last run."""
    notices = [
        f"port {wishes[name]} is taken: {name} listens on {port}"
        for name, port in ports.items()
        if name in wishes and port != wishes[name] and known.get(name) != port
    ]
    if ports["engine"] != ENGINE_PORT:
        notices.append(
            f"port {ENGINE_PORT} is taken on every address: demo engines use {ports['engine']}, your pools need spec.engine.port"
        )
    return notices
