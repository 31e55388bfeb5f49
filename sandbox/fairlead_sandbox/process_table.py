"""The table of a sandbox's processes and the order of their start, as data."""

import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlead_host.settings import HostSettings
from fairlead_operator.settings import OperatorSettings
from fairlead_process.environment import names
from fairlead_process.logs import OnlyLogs
from fairlead_process.starting import FaultSettings
from fairlead_router.settings import RouterSettings
from fairlead_sandbox.demo import load_arguments
from fairlead_sandbox.marks import MARK
from fairlead_sandbox.ports import HOST
from fairlead_sandbox.postgres import PostgresServer
from fairlead_sandbox.processes import Asked, HttpAnswer, Node, PrintedLine, ProcessSpec, Started, Step
from fairlead_sandbox.secret_tokens import SecretTokens
from fairlead_sandbox.state_directory import StateDirectory

FIRST_API_PORT = 8080
FIRST_OPERATOR_PORT = 8090
KUBERNETES_PORT = 6443
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - a person may ask for it
FIRST_ROUTER_PORT = 8000
FIRST_METRICS_PORT = 9000
METRICS_PORT_OF_PODS = 9000
"""Metrics port of the chart's routers, at each pod's own address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCounts:
    """The number of processes of each kind. All processes of a kind do the same work, so that one may fail."""

    routers: int = 2
    apis: int = 1
    operators: int = 1

    @property
    def router_names(self) -> tuple[str, ...]:
        """Names of the routers: router-0, router-1, …"""
        return tuple(f"router-{number}" for number in range(self.routers))

    @property
    def api_names(self) -> tuple[str, ...]:
        """Names of the control API's processes: api, api-1, …"""
        return numbered("api", self.apis)

    @property
    def operator_names(self) -> tuple[str, ...]:
        """Names of the operators: operator, operator-1, …"""
        return numbered("operator", self.operators)


def numbered(name: str, count: int) -> tuple[str, ...]:
    """Return `count` names: the name itself, and the name with a number for each further process."""
    return (name, *(f"{name}-{number}" for number in range(1, count)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlan:
    """The choices from which the process table is made. The steps of the table are given as functions.

    `postgres`: None means that the database at `database_url` is the user's.
    `own_kubernetes`: False means that the cluster is the user's.
    """

    directory: StateDirectory
    ports: dict[str, int]
    counts: ProcessCounts
    tokens: SecretTokens
    database_url: str
    postgres: PostgresServer | None
    own_kubernetes: bool
    node_grace_seconds: float
    kubernetes_variables: Mapping[str, str]
    demo: bool
    load: bool
    publish_kubeconfig: Callable[[], Awaitable[None]]
    apply_definitions: Callable[[], Awaitable[None]]
    apply_demo: Callable[[], Awaitable[None]]

    @property
    def api_urls(self) -> dict[str, str]:
        """URLs of the control API and the web UI, by process."""
        return {name: f"http://{HOST}:{self.ports[name]}" for name in self.counts.api_names}

    @property
    def metrics_urls(self) -> dict[str, str]:
        """URLs of the gateways' metrics pages, by port name."""
        names = (metrics_of(name) for name in self.counts.router_names)
        return {name: f"http://{HOST}:{self.ports[name]}/metrics" for name in names}

    @property
    def router_urls(self) -> dict[str, str]:
        """URLs of the gateways, by process."""
        return {name: f"http://{HOST}:{self.ports[name]}" for name in self.counts.router_names}

    def api_addresses(self, client: int) -> str:
        """Return the addresses of all API processes, separated by commas. `client`: the client's index, which decides
        which address is first, so that clients prefer different processes.
        """
        urls = list(self.api_urls.values())
        first = client % len(urls)
        return ",".join(urls[first:] + urls[:first])


def metrics_of(router: str) -> str:
    """Return the name of the port for a router's metrics and debug view; clients use another port."""
    return f"metrics-of-{router}"


def health_of(operator: str) -> str:
    """Return the name of the port at which an operator reports its health."""
    return f"health-of-{operator}"


def preferred_ports(counts: ProcessCounts) -> dict[str, int]:
    """Return the preferred ports by name; another process may have taken them."""
    ports = {"kubernetes-api": KUBERNETES_PORT}
    ports |= {name: FIRST_API_PORT + number for number, name in enumerate(counts.api_names)}
    ports |= {health_of(name): FIRST_OPERATOR_PORT + number for number, name in enumerate(counts.operator_names)}
    for number, name in enumerate(counts.router_names):
        ports[name] = FIRST_ROUTER_PORT + number
        ports[metrics_of(name)] = FIRST_METRICS_PORT + number
    return ports


def process_table(plan: SandboxPlan) -> tuple[Node, ...]:
    """Return all processes and steps of the plan."""
    nodes: list[Node] = []
    if plan.postgres is not None:
        nodes.append(postgres_process(plan.postgres))
    if plan.own_kubernetes:
        nodes.append(
            kubernetes_api_process(plan.directory, plan.ports["kubernetes-api"], plan.node_grace_seconds, plan.kubernetes_variables)
        )
    nodes += [
        Step(name="kubeconfig", run=plan.publish_kubeconfig, needs=("kubernetes-api",) if plan.own_kubernetes else ()),
        Step(name="definitions", run=plan.apply_definitions, needs=("kubeconfig",)),
        kubelet_process(plan.directory, plan.kubernetes_variables),
        *(_api(plan, name) for name in plan.counts.api_names),
        *(_operator(plan, number, name) for number, name in enumerate(plan.counts.operator_names)),
        *(_router(plan, number, name) for number, name in enumerate(plan.counts.router_names)),
    ]
    if plan.demo:
        nodes.append(Step(name="demo-pool", run=plan.apply_demo, needs=(*plan.counts.operator_names, "kubelet")))
    if plan.load:
        needs = ("demo-pool",) if plan.demo else plan.counts.operator_names
        nodes.append(load_process(tuple(plan.router_urls.values()), needs=(*needs, *plan.counts.router_names)))
    return tuple(nodes)


def python_module(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command line that runs one of Fairlead's modules with the current Python.

    -P keeps files of the current folder from shadowing modules.
    """
    return (sys.executable, "-P", "-m", module, *arguments)


def postgres_process(server: PostgresServer) -> ProcessSpec:
    """Return the process of an embedded server. It is ready when its socket accepts connections."""
    return ProcessSpec(
        name="postgres",
        command=server.command(),
        readiness=Asked(check=server.is_ready),
        before_start=server.prepare,
        stop_signal=signal.SIGINT,  # "fast": ends sessions and stops, without waiting for clients
        orphan_signal=signal.SIGQUIT,  # "immediate": its child processes end with it, and recovery repairs the data
    )


def kubernetes_api_process(directory: StateDirectory, port: int, node_grace_seconds: float, variables: Mapping[str, str]) -> ProcessSpec:
    """Return the process of the sandbox's own Kubernetes API."""
    address = ("--host", HOST, "--port", str(port))
    accounts = ("--service-account", "fairlead/operator", "--service-account", "fairlead/api")
    arguments = ("--state-dir", str(directory.kubernetes), *address, "--node-grace-seconds", f"{node_grace_seconds:g}", *accounts)
    return ProcessSpec(
        name="kubernetes-api",
        command=python_module("processkube.kubernetes_api.main", *arguments),
        readiness=PrintedLine(prefix="ready "),
        reads=names(OnlyLogs, FaultSettings),
        environment=variables,
    )


def kubelet_command(kubeconfig: Path, state_dir: Path, *arguments: str) -> tuple[str, ...]:
    """Return the command that starts a kubelet with Fairlead's images; its pods have the sandbox's mark."""
    places = ("--kubeconfig", str(kubeconfig), "--state-dir", str(state_dir))
    return python_module(
        "processkube.kubelet.main", *places, "--images", "fairlead_sandbox.images:CATALOGUE", "--inherit", MARK, *arguments
    )


def kubelet_process(directory: StateDirectory, variables: Mapping[str, str]) -> ProcessSpec:
    """Return the process of the kubelet of the sandbox's only node."""
    folder = directory.kubernetes
    return ProcessSpec(
        name="kubelet",
        command=kubelet_command(folder / "kubeconfig-kubelet", folder),
        readiness=PrintedLine(prefix="ready "),
        reads=names(OnlyLogs, FaultSettings),
        environment=variables,
        needs=("kubeconfig",),
        orphan_signal=signal.SIGTERM,  # it ends its pods before itself
        stop_grace_seconds=15.0,
    )


def _api(plan: SandboxPlan, name: str) -> ProcessSpec:
    needs = ("kubeconfig",) if plan.postgres is None else ("kubeconfig", "postgres")
    url = plan.api_urls[name]
    return ProcessSpec(
        name=name,
        command=python_module("fairlead_host", "--host", HOST, "--port", str(plan.ports[name])),
        readiness=HttpAnswer(url=f"{url}/readyz"),
        reads=names(HostSettings, FaultSettings),
        environment={
            "FAIRLEAD_DATABASE_URL": plan.database_url,
            "FAIRLEAD_BOOTSTRAP_TOKENS": plan.tokens.bootstrap,
            "FAIRLEAD_PUBLIC_URL": url,
            **({"FAIRLEAD_GATEWAY_URL": next(iter(plan.router_urls.values()))} if plan.router_urls else {}),
            "KUBECONFIG": str(plan.directory.kubernetes / "kubeconfig-fairlead-api"),
        },
        needs=needs,
    )


def _operator(plan: SandboxPlan, number: int, name: str) -> ProcessSpec:
    port = plan.ports[health_of(name)]
    return ProcessSpec(
        name=name,
        command=python_module("fairlead_operator.main"),
        readiness=HttpAnswer(url=f"http://{HOST}:{port}/readyz"),
        reads=names(OperatorSettings, FaultSettings),
        environment={
            "KUBECONFIG": str(plan.directory.kubernetes / "kubeconfig-fairlead-operator"),
            "FAIRLEAD_API_URL": plan.api_addresses(number),
            "FAIRLEAD_API_TOKEN": plan.tokens.operator,
            "FAIRLEAD_OPERATOR_HEALTH_HOST": HOST,
            "FAIRLEAD_OPERATOR_HEALTH_PORT": str(port),
            # Always the same name: restarted, it need not wait for its own Lease.
            "FAIRLEAD_OPERATOR_IDENTITY": f"sandbox-{number}" if number else "sandbox",
            "FAIRLEAD_WATCH_NAMESPACES": "",
        },
        # Needing the kubelet, it stops before it: it must not take the end of the node for lost instances.
        needs=("definitions", *plan.counts.api_names, "kubelet"),
    )


def _router(plan: SandboxPlan, number: int, name: str) -> ProcessSpec:
    return router_process(
        name,
        ports=plan.ports,
        api_addresses=plan.api_addresses(number),
        tokens=plan.tokens,
        directory=plan.directory,
        needs=plan.counts.api_names,
    )


def router_process(
    name: str,
    *,
    ports: Mapping[str, int],
    api_addresses: str,
    tokens: SecretTokens,
    directory: StateDirectory,
    needs: tuple[str, ...],
    host: str = HOST,
) -> ProcessSpec:
    """Return the process of a router with this name on its ports. Clients reach it at `host`; its metrics page is on
    the loopback only.
    """
    port = ports[name]
    return ProcessSpec(
        name=name,
        command=python_module("fairlead_router.main", "--host", host, "--port", str(port), "--admin-port", str(ports[metrics_of(name)])),
        readiness=HttpAnswer(url=f"http://{HOST if host == EVERY_ADDRESS else host}:{port}/readyz"),
        reads=names(RouterSettings, FaultSettings),
        environment={
            "FAIRLEAD_API_URL": api_addresses,
            "FAIRLEAD_API_TOKEN": tokens.router,
            "FAIRLEAD_ROUTER_ID": name,
            "FAIRLEAD_SPOOL_DIR": str(directory.spool / name),
            "FAIRLEAD_ROUTERS_DIR": str(directory.routers),
        },
        needs=needs,
    )


def load_process(urls: Sequence[str], *, needs: tuple[str, ...], environment: Mapping[str, str] | None = None) -> ProcessSpec:
    """Return the process of the background load on the demo pool, sent through these gateways."""
    return ProcessSpec(
        name="load",
        command=python_module("fairlead_simulator.replay", *load_arguments(urls)),
        readiness=Started(),
        reads=frozenset({"FAIRLEAD_GATEWAY_KEY"}),
        environment={} if environment is None else environment,
        needs=needs,
        stop_signal=signal.SIGINT,
        stop_grace_seconds=3.0,
        console=False,
    )
