"""The table of a sandbox's processes and the order of their start, as data."""

import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from fairlead_host.settings import HostSettings
from fairlead_operator.settings import OperatorSettings
from fairlead_process.environment import names
from fairlead_process.logs import OnlyLogs
from fairlead_process.starting import FaultSettings
from fairlead_router.settings import RouterSettings
from fairlead_sandbox.demo import load_arguments
from fairlead_sandbox.ports import HOST
from fairlead_sandbox.postgres import PostgresServer
from fairlead_sandbox.processes import Asked, HttpAnswer, Node, PrintedLine, ProcessSpec, Started, Step
from fairlead_sandbox.secret_tokens import SecretTokens
from fairlead_sandbox.state_directory import StateDirectory

PREFERRED_PORTS = {"kubernetes-api": 6443, "api": 8080, "operator-health": 8090}
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - a person may ask for it
FIRST_ROUTER_PORT = 8000
FIRST_METRICS_PORT = 9000


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlan:
    """The choices from which the process table is made; its steps are given as functions.

    `postgres` None means that the database at `database_url` is the user's; without `own_kubernetes` so is the cluster.
    """

    directory: StateDirectory
    ports: dict[str, int]
    routers: int
    tokens: SecretTokens
    database_url: str
    postgres: PostgresServer | None
    own_kubernetes: bool
    node_grace_seconds: float
    demo: bool
    load: bool
    publish_kubeconfig: Callable[[], Awaitable[None]]
    apply_definitions: Callable[[], Awaitable[None]]
    apply_demo: Callable[[], Awaitable[None]]

    @property
    def api_url(self) -> str:
        """URL of the control API and the web UI."""
        return f"http://{HOST}:{self.ports['api']}"

    @property
    def metrics_urls(self) -> dict[str, str]:
        """URLs of the gateways' metrics pages, by the name of their port."""
        names = (metrics_of(name) for name in router_names(self.routers))
        return {name: f"http://{HOST}:{self.ports[name]}/metrics" for name in names}

    @property
    def router_urls(self) -> tuple[str, ...]:
        """URLs of the gateways."""
        return tuple(f"http://{HOST}:{self.ports[name]}" for name in router_names(self.routers))


def metrics_of(router: str) -> str:
    """Name of the port for a router's metrics and debug view; clients use another port."""
    return f"metrics-of-{router}"


def router_names(count: int) -> tuple[str, ...]:
    """The names router-0, router-1, … of `count` routers."""
    return tuple(f"router-{number}" for number in range(count))


def preferred_ports(routers: int) -> dict[str, int]:
    """Preferred ports by name; whether they are free is not looked at."""
    ports = dict(PREFERRED_PORTS)
    for number, name in enumerate(router_names(routers)):
        ports[name] = FIRST_ROUTER_PORT + number
        ports[metrics_of(name)] = FIRST_METRICS_PORT + number
    return ports


def process_table(plan: SandboxPlan) -> tuple[Node, ...]:
    """All processes and steps of the plan."""
    nodes: list[Node] = []
    if plan.postgres is not None:
        nodes.append(postgres_process(plan.postgres))
    if plan.own_kubernetes:
        nodes.append(_kubernetes_api(plan))
    nodes += [
        Step(name="kubeconfig", run=plan.publish_kubeconfig, needs=("kubernetes-api",) if plan.own_kubernetes else ()),
        Step(name="definitions", run=plan.apply_definitions, needs=("kubeconfig",)),
        _kubelet(plan),
        _api(plan),
        _operator(plan),
        *(_router(plan, name) for name in router_names(plan.routers)),
    ]
    if plan.demo:
        nodes.append(Step(name="demo-pool", run=plan.apply_demo, needs=("operator", "kubelet")))
    if plan.load:
        nodes.append(_load(plan))
    return tuple(nodes)


def python_module(module: str, *arguments: str) -> tuple[str, ...]:
    """The command line that runs one of our modules with the Python that runs us.

    -P keeps files of the current folder from shadowing modules.
    """
    return (sys.executable, "-P", "-m", module, *arguments)


def postgres_process(server: PostgresServer) -> ProcessSpec:
    """An embedded server. Its socket is ready when it accepts connections."""
    return ProcessSpec(
        name="postgres",
        command=server.command(),
        readiness=Asked(check=server.is_ready),
        before_start=server.prepare,
        user=server.user.account,
        stop_signal=signal.SIGINT,  # "fast": ends sessions and stops, without waiting for clients
        orphan_signal=signal.SIGQUIT,  # "immediate": its child processes end with it, and recovery repairs the data
    )


def _kubernetes_api(plan: SandboxPlan) -> ProcessSpec:
    address = ("--host", HOST, "--port", str(plan.ports["kubernetes-api"]))
    arguments = ("--state-dir", str(plan.directory.kubernetes), *address, "--node-grace-seconds", f"{plan.node_grace_seconds:g}")
    return ProcessSpec(
        name="kubernetes-api",
        command=python_module("fairlead_sandbox.kubernetes_api.main", *arguments),
        readiness=PrintedLine(prefix="ready "),
        reads=names(OnlyLogs, FaultSettings),
    )


def _kubelet(plan: SandboxPlan) -> ProcessSpec:
    folder = plan.directory.kubernetes
    arguments = ("--kubeconfig", str(folder / "kubeconfig-kubelet"), "--state-dir", str(folder))
    return ProcessSpec(
        name="kubelet",
        command=python_module("fairlead_sandbox.kubelet.main", *arguments),
        readiness=PrintedLine(prefix="ready "),
        reads=names(OnlyLogs, FaultSettings),
        needs=("kubeconfig",),
        orphan_signal=signal.SIGTERM,  # it ends its pods before itself
        stop_grace_seconds=15.0,
    )


def _api(plan: SandboxPlan) -> ProcessSpec:
    needs = ("kubeconfig",) if plan.postgres is None else ("kubeconfig", "postgres")
    return ProcessSpec(
        name="api",
        command=python_module("fairlead_host", "--host", HOST, "--port", str(plan.ports["api"])),
        readiness=HttpAnswer(url=f"{plan.api_url}/readyz"),
        reads=names(HostSettings, FaultSettings),
        environment={
            "FAIRLEAD_DATABASE_URL": plan.database_url,
            "FAIRLEAD_BOOTSTRAP_TOKENS": plan.tokens.bootstrap,
            "FAIRLEAD_PUBLIC_URL": plan.api_url,
            "KUBECONFIG": str(plan.directory.kubernetes / "kubeconfig-fairlead-api"),
        },
        needs=needs,
    )


def _operator(plan: SandboxPlan) -> ProcessSpec:
    port = plan.ports["operator-health"]
    return ProcessSpec(
        name="operator",
        command=python_module("fairlead_operator.main"),
        readiness=HttpAnswer(url=f"http://{HOST}:{port}/readyz"),
        reads=names(OperatorSettings, FaultSettings),
        environment={
            "KUBECONFIG": str(plan.directory.kubernetes / "kubeconfig-fairlead-operator"),
            "FAIRLEAD_API_URL": plan.api_url,
            "FAIRLEAD_API_TOKEN": plan.tokens.operator,
            "FAIRLEAD_OPERATOR_HEALTH_HOST": HOST,
            "FAIRLEAD_OPERATOR_HEALTH_PORT": str(port),
            # Always the same name, as there is only one operator: restarted, it need not wait for its own Lease.
            "FAIRLEAD_OPERATOR_IDENTITY": "sandbox",
            "FAIRLEAD_WATCH_NAMESPACES": "",
        },
        # Needing the kubelet, it stops before it: it must not take the end of the node for lost instances.
        needs=("definitions", "api", "kubelet"),
    )


def _router(plan: SandboxPlan, name: str) -> ProcessSpec:
    return router_process(
        name,
        ports=plan.ports,
        api_url=plan.api_url,
        tokens=plan.tokens,
        directory=plan.directory,
    )


def router_process(
    name: str,
    *,
    ports: Mapping[str, int],
    api_url: str,
    tokens: SecretTokens,
    directory: StateDirectory,
    host: str = HOST,
    needs: tuple[str, ...] = ("api",),
) -> ProcessSpec:
    """A gateway of this name on its ports; clients reach it at `host`, its metrics page on the loopback only."""
    port = ports[name]
    return ProcessSpec(
        name=name,
        command=python_module("fairlead_router.main", "--host", host, "--port", str(port), "--admin-port", str(ports[metrics_of(name)])),
        readiness=HttpAnswer(url=f"http://{HOST if host == EVERY_ADDRESS else host}:{port}/readyz"),
        reads=names(RouterSettings, FaultSettings),
        environment={
            "FAIRLEAD_API_URL": api_url,
            "FAIRLEAD_API_TOKEN": tokens.router,
            "FAIRLEAD_ROUTER_ID": name,
            "FAIRLEAD_SPOOL_DIR": str(directory.spool / name),
        },
        needs=needs,
    )


def _load(plan: SandboxPlan) -> ProcessSpec:
    needs = ("demo-pool",) if plan.demo else ("operator",)
    return ProcessSpec(
        name="load",
        command=python_module("fairlead_simulator.replay", *load_arguments(plan.router_urls)),
        readiness=Started(),
        reads=frozenset({"FAIRLEAD_GATEWAY_KEY"}),
        needs=(*needs, *router_names(plan.routers)),
        stop_signal=signal.SIGINT,
        stop_grace_seconds=3.0,
        console=False,
    )
