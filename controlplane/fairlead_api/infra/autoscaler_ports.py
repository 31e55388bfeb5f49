"""The sockets of the ports for external autoscalers, such as KEDA. They are bound before anything else starts."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead_api.autoscaler_settings import CERT_FILES, AutoscalerSettings
from fairlead_process.certificates import Certificate
from fairlead_process.doors import Door, DoorPlan
from fairlead_process.starting import bind

SCALER = DoorPlan(name="KEDA", wanted=256)
METRICS = DoorPlan(name="external metrics", wanted=256)
"""The plan for the connections of the port for external metrics: its name, and the number of connections that it needs.
A cluster has few autoscalers, each with one or two connections.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerPorts:
    """The bound sockets of the ports for external autoscalers; None for a port that is not configured. `doors` holds,
    by the port's name, the maximum number of connections that the process gives to the port.
    """

    scaler: socket.socket | None = None
    metrics: socket.socket | None = None
    scaler_certificate: Certificate | None = None
    metrics_certificate: Certificate | None = None
    doors: Mapping[str, int] = field(default_factory=dict)

    def door(self, plan: DoorPlan) -> Door:
        """Return the limiter of a port's simultaneous connections."""
        return Door(self.doors.get(plan.name, plan.wanted))


def plans_of(settings: AutoscalerSettings) -> tuple[DoorPlan, ...]:
    """Return, for each port in the settings, its plan: the port's name, and the number of connections that it needs."""
    return tuple(plan for plan, port in ((SCALER, settings.scaler_port), (METRICS, settings.metrics_port)) if port is not None)


def bound(settings: AutoscalerSettings, host: str, doors: Mapping[str, int]) -> AutoscalerPorts:
    """Bind the ports that the settings contain. Raises InvalidInput."""
    return AutoscalerPorts(
        scaler=None if settings.scaler_port is None else bind("FAIRLEAD_SCALER_PORT", host, settings.scaler_port),
        metrics=None if settings.metrics_port is None else bind("FAIRLEAD_EXTERNAL_METRICS_PORT", host, settings.metrics_port),
        scaler_certificate=_certificate(settings, "h2"),
        metrics_certificate=_certificate(settings, "http/1.1"),
        doors=doors,
    )


def _certificate(settings: AutoscalerSettings, protocol: str) -> Certificate | None:
    """Return the certificate for a port; None if no certificate is set. TLS offers only `protocol`, because a client
    might choose a second protocol if one were offered. Each port needs its own certificate object, because each port
    verifies its clients by different authorities.
    """
    if settings.cert_file is None or settings.key_file is None:
        return None
    return Certificate(settings.cert_file, settings.key_file, CERT_FILES, [protocol])
