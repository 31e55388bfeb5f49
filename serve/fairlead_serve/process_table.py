"""The processes of `fairlead serve`, as data: Postgres, the API with its pages, the source, and a gateway."""

from dataclasses import dataclass

from fairlead_host.settings import HostSettings
from fairlead_process.environment import names
from fairlead_process.starting import FaultSettings
from fairlead_sandbox.ports import HOST
from fairlead_sandbox.postgres import PostgresServer
from fairlead_sandbox.process_table import EVERY_ADDRESS, postgres_process, python_module, router_process
from fairlead_sandbox.processes import HttpAnswer, Node, PrintedLine, ProcessSpec
from fairlead_sandbox.secret_tokens import SecretTokens
from fairlead_sandbox.state_directory import StateDirectory
from fairlead_serve.source_process import SourceSettings
from fairlead_serve.state_files import StateFiles

ROUTER = "router-0"
PREFERRED_PORTS = {ROUTER: 8100, "api": 8080, f"metrics-of-{ROUTER}": 9000, "metrics-of-source": 9001}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServePlan:
    """The choices from which the table of processes is made. If `postgres` is None, the processes use the user's own
    database at `database_url`.
    """

    directory: StateDirectory
    files: StateFiles
    host: str
    ports: dict[str, int]
    tokens: SecretTokens
    database_url: str
    postgres: PostgresServer | None

    @property
    def api_url(self) -> str:
        """URL of the control API and the web UI."""
        return f"http://{HOST}:{self.ports['api']}"

    @property
    def gateway_url(self) -> str:
        return f"http://{HOST if self.host == EVERY_ADDRESS else self.host}:{self.ports[ROUTER]}"

    @property
    def metrics_url(self) -> str:
        return f"http://{HOST}:{self.ports[f'metrics-of-{ROUTER}']}/metrics"

    @property
    def source_metrics_url(self) -> str:
        return f"http://{HOST}:{self.ports['metrics-of-source']}/metrics"


def process_table(plan: ServePlan) -> tuple[Node, ...]:
    """Return all processes of the plan."""
    router = router_process(
        ROUTER, ports=plan.ports, api_addresses=plan.api_url, tokens=plan.tokens, directory=plan.directory, host=plan.host, needs=("api",)
    )
    database = (postgres_process(plan.postgres),) if plan.postgres is not None else ()
    return (*database, _api(plan), _source(plan), router)


def _files(plan: ServePlan) -> tuple[str, ...]:
    return ("--state-dir", str(plan.files.root), "--file", str(plan.files.pool_file))


def _api(plan: ServePlan) -> ProcessSpec:
    return ProcessSpec(
        name="api",
        command=python_module("fairlead_serve.api_process", "--host", HOST, "--port", str(plan.ports["api"]), *_files(plan)),
        readiness=HttpAnswer(url=f"{plan.api_url}/readyz"),
        reads=names(HostSettings, FaultSettings),
        environment={
            "FAIRLEAD_DATABASE_URL": plan.database_url,
            "FAIRLEAD_BOOTSTRAP_TOKENS": plan.tokens.bootstrap,
            "FAIRLEAD_PUBLIC_URL": plan.api_url,
            "FAIRLEAD_GATEWAY_URL": plan.gateway_url,
        },
        needs=() if plan.postgres is None else ("postgres",),
    )


def _source(plan: ServePlan) -> ProcessSpec:
    return ProcessSpec(
        name="source",
        command=python_module("fairlead_serve.source_process", *_files(plan), "--metrics-port", str(plan.ports["metrics-of-source"])),
        readiness=PrintedLine(prefix="ready"),
        reads=names(SourceSettings, FaultSettings),
        environment={"FAIRLEAD_API_URL": plan.api_url, "FAIRLEAD_API_TOKEN": plan.tokens.operator},
        needs=("api",),
    )
