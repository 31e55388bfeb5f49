"""The operator's settings, from the environment, read once at start."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from fairlead.errors import InvalidInput
from fairlead.reconciling.observed import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneSettings:
    """Where the control API is. `timeout_seconds` bounds one call, so that a silent API delays a round by no more."""

    url: str
    token: str
    timeout_seconds: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a pool is looked at, and how long its deletion may wait. Seconds."""

    least: float = 0.1
    busy: float = 1.0
    settled: float = 10.0
    children: float = 300.0
    """Service and PodDisruptionBudget are applied again at least so often."""
    router_silence: float = 10.0
    """So long the control API must have answered before "no router is live" is believed when draining."""
    farewell_drain: float = 15.0
    """Longest drain of a deleted pool's instances."""
    farewell: float = 20.0
    """After this a deleted pool's finalizer goes, even when the control API never answered; with the calls under way that makes 30 at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """Everything the operator is told from outside. `namespaces` empty = all; `health_port` 0 = no health endpoint."""

    control_plane: ControlPlaneSettings
    kubeconfig: str | None = None
    namespaces: tuple[str, ...] = ()
    health_port: int = 0
    engine_image: str
    pace: Pace = field(default_factory=Pace)
    limits: Limits = field(default_factory=Limits)


def read_settings(environment: Mapping[str, str]) -> OperatorSettings:
    """Settings from environment variables. Raises InvalidInput naming the variable."""
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
        control_plane=ControlPlaneSettings(url=url, token=token),
        kubeconfig=environment.get("KUBECONFIG") or None,
        namespaces=namespaces,
        health_port=int(port),
        engine_image=environment.get("FAIRLEAD_ENGINE_IMAGE") or f"fairlead/engine:{_own_version()}",
        pace=Pace(settled=_seconds(environment, "FAIRLEAD_OPERATOR_RESYNC_SECONDS", 10.0)),
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


def _own_version() -> str:
    try:
        return version("fairlead")
    except PackageNotFoundError:
        return "latest"
