"""The operator's settings, read once from the environment; docs/settings.md is generated from them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fairlead.reconciling.observed import ReplicaLimits
from fairlead_process.environment import group, read, variable
from fairlead_process.kinds import PORT, Choice, Names, Number, Parsed, Text, Whole
from fairlead_process.logs import LogSettings
from fairlead_process.shared_variables import API_URLS, KUBECONFIG

NO_NODES, TERMINATIONS, CORDONS = "none", "terminations", "cordons"
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneSettings:
    """The address of the control API, and limits of the calls to it.

    `timeout_seconds` is the longest duration of a call, and so the longest delay of a round if the API does not
    respond. `calls_at_once` is the maximum number of calls in flight; it is smaller than the number of database
    connections that the API reserves for operators.
    """

    urls: tuple[str, ...] = field(metadata=API_URLS)
    token: str = field(
        repr=False,
        metadata=variable(
            "FAIRLEAD_API_TOKEN", Text("a token of role system-operator", "token", secret=True), "token of role `system-operator`"
        ),
    )
    timeout_seconds: float = 3.0
    calls_at_once: int = field(
        default=4,
        metadata=variable(
            "FAIRLEAD_OPERATOR_CALLS_AT_ONCE",
            Whole("calls", 1, 1000),
            "parallel calls to the control API, which has a handful of database connections for them",
            "more = the API answers 503, and all pools pause",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a pool is checked, and how long its deletion may wait, in seconds."""

    least: float = 0.1
    reconciles_at_once: int = field(
        default=16,
        metadata=variable(
            "FAIRLEAD_OPERATOR_ROUNDS_AT_ONCE",
            Whole("pools", 1, 1000),
            "pools reconciled at the same time",
            "more = pools settle sooner after a start, with more load on the Kubernetes API",
        ),
    )
    longest_pause: float = 30.0
    """Longest pause between two tries while the control API does not respond."""
    silence: float = 10.0
    """Seconds without a response about a pool after which the control API counts as unreachable."""
    recent_figures: float = 120.0
    """Seconds after the control API's last response during which the condition SLOMet keeps the shares of requests in
    that response. The shares are computed over the requests of five minutes.
    """
    longest_retry: float = 300.0
    """Longest pause between two tries of an action that the Kubernetes API refused."""
    busy: float = 1.0
    settled: float = field(
        default=10.0,
        metadata=variable(
            "FAIRLEAD_OPERATOR_RESYNC_SECONDS",
            Number("seconds", 0.1, 3600),
            "pause after which the state of a pool in which nothing happens is sent to the control API again",
            "its objects are read again after six pauses; longer = fewer requests, later figures in the status",
        ),
    )
    children: float = 300.0
    """Longest time, in seconds, between two checks of the Service and the PodDisruptionBudgets when no event about them
    arrives.
    """
    gateways: float = 2.0
    """Pause between two reads of the statuses that gateways write on pools, which no watch reports: see
    `gateways.watching`.
    """
    nodes: float = 3.0
    """Pause between two reads of the nodes with instances. It is short, because a spot notice may come only 30 s before
    its node is taken away.
    """
    deletions: float = 60.0
    """Pause between two searches for deleted pools that the control API still knows."""
    router_silence: float = 10.0
    """Seconds for which the control API must have responded without interruption before its report that no router is
    live is trusted. Until then, drains wait for the routers.
    """
    finalizing_drain: float = 15.0
    """Maximum number of seconds for which a deleted pool's instances are drained."""
    finalizing: float = 20.0
    """Seconds after which a deleted pool's finalizer is removed, even if the control API never responded.

    Including the calls that are then in flight, the removal takes at most 30 seconds.
    """

    @property
    def longest_unread(self) -> float:
        """Longest time, in seconds, for which a pool's objects are not read if nothing is in progress in the pool and
        no event about the objects arrives.
        """
        return 6 * self.settled


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """The Lease that one operator holds at a time, and the seconds for which a renewal counts."""

    namespace: str = field(
        default="",
        metadata=variable(
            "FAIRLEAD_OPERATOR_LEASE_NAMESPACE",
            Text("the name of a namespace", "name"),
            "namespace of the Lease",
            "must be equal for operators that watch the same namespaces",
            default_shown="the pod's own, else the first watched, else `default`",
        ),
    )
    name: str = "fairlead-operator"
    seconds: int = field(
        default=10,
        metadata=variable(
            "FAIRLEAD_OPERATOR_LEASE_SECONDS",
            Whole("seconds", 2, 300),
            "another operator takes over from a killed one after 1.1 times this",
            "shorter = sooner, but a slow Kubernetes API makes the holder step down",
        ),
    )

    @property
    def retry_seconds(self) -> float:
        """Pause between two attempts to take or renew the Lease."""
        return self.seconds / 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceName:
    """Namespace and name of a Service."""

    namespace: str
    name: str

    @staticmethod
    def parse(text: str) -> "ServiceName":
        """Parse `namespace/name`. Raises ValueError."""
        namespace, _, name = text.partition("/")
        if not namespace or not name or "/" in name:
            raise ValueError(text)
        return ServiceName(namespace=namespace, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PickerSettings:
    """The Service of the routers that gateways call to pick an instance, for pools with `spec.gateway`."""

    service: ServiceName | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_PICKER_SERVICE",
            Parsed(ServiceName.parse, "namespace/name of a Service", "namespace/name"),
            "the routers' Service by which gateways ask them to pick an instance",
            "without it pools with `spec.gateway` are not announced to gateways, and their status says so",
            default_shown="none",
        ),
    )
    port: int = field(default=9002, metadata=variable("FAIRLEAD_PICKER_SERVICE_PORT", Whole("port", 1, 65535), "that Service's port"))


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """All settings of the operator.

    If `namespaces` is empty, the operator watches all namespaces. If `health_port` is 0, there is no health endpoint.
    If `identity` is empty, each start makes a new identity.
    """

    control_plane: ControlPlaneSettings = field(metadata=group(ControlPlaneSettings))
    kubeconfig: str | None = field(default=None, metadata=KUBECONFIG)
    namespaces: tuple[str, ...] = field(
        default=(),
        metadata=variable(
            "FAIRLEAD_WATCH_NAMESPACES",
            Names(),
            "namespaces that are watched",
            "no rights outside these namespaces are needed",
            default_shown="all",
        ),
    )
    leaving_nodes: str = field(
        default=NO_NODES,
        metadata=variable(
            "FAIRLEAD_LEAVING_NODES",
            Choice((NO_NODES, TERMINATIONS, CORDONS)),
            "the nodes whose instances are drained before they are evicted",
            "`terminations`: nodes whose removal an autoscaler or a cloud has announced; `cordons`: also cordoned nodes; both need the right to get nodes",
        ),
    )
    engine_image: str = field(
        default_factory=lambda: f"fairlead/engine:{_own_version()}",
        metadata=variable(
            "FAIRLEAD_ENGINE_IMAGE",
            Text("the name of an image", "image"),
            "image of simulated engines without a template",
            default_shown="`fairlead/engine:<version>`",
        ),
    )
    engine_pull_secrets: tuple[str, ...] = field(
        default=(),
        metadata=variable(
            "FAIRLEAD_ENGINE_PULL_SECRETS",
            Names(),
            "Secrets with credentials of that image's registry, in the namespace of each pool",
            default_shown="none",
        ),
    )
    health_host: str = field(
        default="0.0.0.0",  # noqa: S104 - the kubelet asks at the pod's address
        metadata=variable(
            "FAIRLEAD_OPERATOR_HEALTH_HOST", Text("an address of this machine", "address"), "address of the health endpoints"
        ),
    )
    health_port: int = field(
        default=0,
        metadata=variable("FAIRLEAD_OPERATOR_HEALTH_PORT", PORT, "the port of `/healthz` and `/readyz`", "0 = no health endpoint"),
    )
    identity: str = field(
        default="",
        metadata=variable(
            "FAIRLEAD_OPERATOR_IDENTITY",
            Text("a name", "text"),
            "its name in the Lease; if set to the pod's name (downward API), a restarted container continues at once",
            "two operators with the same identity would both act",
            default_shown="host name and a random part",
        ),
    )
    picker: PickerSettings = field(default_factory=PickerSettings, metadata=group(PickerSettings))
    lease: LeaseSettings = field(default_factory=LeaseSettings, metadata=group(LeaseSettings))
    pace: Pace = field(default_factory=Pace, metadata=group(Pace))
    limits: ReplicaLimits = field(default_factory=ReplicaLimits)
    logs: LogSettings = field(default_factory=LogSettings, metadata=group(LogSettings))


def read_settings(environment: Mapping[str, str]) -> OperatorSettings:
    """Read the settings from environment variables. Raises InvalidInput naming the variable."""
    settings = read(OperatorSettings, environment)
    namespaces = settings.namespaces
    namespace = settings.lease.namespace or _own_namespace() or (namespaces[0] if namespaces else "default")
    return replace(settings, lease=replace(settings.lease, namespace=namespace, name=_lease_name(namespaces)))


def _own_namespace() -> str:
    """Return the namespace of the pod in which the operator runs; empty outside a cluster."""
    try:
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _lease_name(namespaces: tuple[str, ...]) -> str:
    """Return the Lease's name, shared by all operators that watch the same namespaces; operators of other namespaces
    have another Lease.
    """
    if not namespaces:
        return "fairlead-operator"
    return f"fairlead-operator-{hashlib.sha256(','.join(sorted(set(namespaces))).encode()).hexdigest()[:8]}"


def _own_version() -> str:
    try:
        return version("fairlead")
    except PackageNotFoundError:
        return "latest"
