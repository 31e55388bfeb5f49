"""The operator's settings, from the environment, read once at start."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fairlead.errors import InvalidInput
from fairlead.reconciling.observed import Limits

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneSettings:
    """Where the control API is. `timeout_seconds` bounds one call, so that a silent API delays a round by no more; `calls_at_once` are under way
    at the same time, fewer than the API has database connections for them."""

    url: str
    token: str
    timeout_seconds: float = 3.0
    calls_at_once: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a pool is looked at, and how long its deletion may wait. Seconds."""

    least: float = 0.1
    reconciles_at_once: int = 16
    """Most pools looked at at the same time."""
    longest_pause: float = 30.0
    """Longest pause between two retries at a control API that does not answer."""
    silence: float = 10.0
    """A control API that has not answered a pool for less long is not called unreachable yet."""
    longest_retry: float = 300.0
    """Longest pause between two retries at an action that the Kubernetes API refused."""
    busy: float = 1.0
    settled: float = 10.0
    children: float = 300.0
    """Service and PodDisruptionBudget are checked again at least so often, even when no event told of them."""
    router_silence: float = 10.0
    """So long the control API must have answered before "no router is live" is trusted when draining."""
    finalizing_drain: float = 15.0
    """Longest drain of a deleted pool's instances."""
    finalizing: float = 20.0
    """After this a deleted pool's finalizer goes, even when the control API never answered; with the calls under way that makes 30 at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """The Lease of which one operator at a time is the holder, and for how many seconds a renewal counts."""

    namespace: str = "default"
    name: str = "fairlead-operator"
    seconds: int = 10

    @property
    def retry_seconds(self) -> float:
        """Pause between two retries to take or renew it."""
        return self.seconds / 10


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """Everything the operator is told from outside. `namespaces` empty = all; `health_port` 0 = no health endpoint; `identity` empty = a new one."""

    control_plane: ControlPlaneSettings
    kubeconfig: str | None = None
    namespaces: tuple[str, ...] = ()
    health_host: str = "0.0.0.0"  # noqa: S104 - the kubelet asks at the pod's address
    health_port: int = 0
    identity: str = ""
    lease: LeaseSettings = field(default_factory=LeaseSettings)
    engine_image: str
    pace: Pace = field(default_factory=Pace)
    limits: Limits = field(default_factory=Limits)


def read_settings(environment: Mapping[str, str]) -> OperatorSettings:
    """Settings from environment variables (docs/operations.md lists them). Raises InvalidInput naming the variable."""
    url = environment.get("FAIRLEAD_API_URL", "").rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise InvalidInput("FAIRLEAD_API_URL", url, "set it to the control API's address, such as http://fairlead-api:8080")
    token = environment.get("FAIRLEAD_API_TOKEN", "")
    if not token:
        raise InvalidInput("FAIRLEAD_API_TOKEN", token, "set it to a token of role system")
    port = environment.get("FAIRLEAD_OPERATOR_HEALTH_PORT", "0")
    if not port.isdigit() or int(port) > 65535:
        raise InvalidInput("FAIRLEAD_OPERATOR_HEALTH_PORT", port, "set it to a port, or 0 for no health endpoint")
    namespaces = tuple(name.strip() for name in environment.get("FAIRLEAD_WATCH_NAMESPACES", "").split(",") if name.strip())
    return OperatorSettings(
        control_plane=ControlPlaneSettings(
            url=url, token=token, calls_at_once=_whole(environment, "FAIRLEAD_OPERATOR_CALLS_AT_ONCE", 4, 1, 1000, "calls")
        ),
        kubeconfig=environment.get("KUBECONFIG") or None,
        namespaces=namespaces,
        health_host=environment.get("FAIRLEAD_OPERATOR_HEALTH_HOST") or "0.0.0.0",  # noqa: S104
        health_port=int(port),
        identity=environment.get("FAIRLEAD_OPERATOR_IDENTITY", ""),
        lease=LeaseSettings(
            namespace=environment.get("FAIRLEAD_OPERATOR_LEASE_NAMESPACE")
            or _own_namespace()
            or (namespaces[0] if namespaces else "default"),
            name=_lease_name(namespaces),
            seconds=_whole(environment, "FAIRLEAD_OPERATOR_LEASE_SECONDS", 10, 2, 300, "seconds"),
        ),
        engine_image=environment.get("FAIRLEAD_ENGINE_IMAGE") or f"fairlead/engine:{_own_version()}",
        pace=Pace(
            settled=_seconds(environment, "FAIRLEAD_OPERATOR_RESYNC_SECONDS", 10.0),
            reconciles_at_once=_whole(environment, "FAIRLEAD_OPERATOR_ROUNDS_AT_ONCE", 16, 1, 1000, "pools"),
        ),
    )


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "")
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.1 <= seconds <= 3600:
        raise InvalidInput(name, text, "set it to seconds between 0.1 and 3600")
    return seconds


def _whole(environment: Mapping[str, str], name: str, default: int, least: int, most: int, unit: str) -> int:
    text = environment.get(name) or str(default)
    if not text.isdecimal() or not least <= int(text) <= most:
        raise InvalidInput(name, text, f"set it to whole {unit} between {least} and {most}")
    return int(text)


def _own_namespace() -> str:
    """The namespace of the pod this runs in; empty outside a cluster."""
    try:
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _lease_name(namespaces: tuple[str, ...]) -> str:
    """One Lease for all who watch the same namespaces: operators that watch others must not wait for each other."""
    if not namespaces:
        return "fairlead-operator"
    return f"fairlead-operator-{hashlib.sha256(','.join(sorted(set(namespaces))).encode()).hexdigest()[:8]}"


def _own_version() -> str:
    try:
        return version("fairlead")
    except PackageNotFoundError:
        return "latest"
