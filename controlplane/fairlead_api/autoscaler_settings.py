"""Settings of the ports at which external autoscalers, such as KEDA, read metrics. They are read from the environment
once, at the start.
"""

from dataclasses import dataclass, field
from pathlib import Path

from fairlead.errors import InvalidInput
from fairlead_process.environment import variable
from fairlead_process.kinds import File, Whole

CERT_FILES = "FAIRLEAD_AUTOSCALERS_TLS_CERT_FILE, FAIRLEAD_AUTOSCALERS_TLS_KEY_FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerSettings:
    """Settings of the ports for external autoscalers, and of the ports' certificates. A port that is None is not
    served.
    """

    scaler_port: int | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_SCALER_PORT",
            Whole("port", 1, 65535),
            "port of the external scaler that KEDA calls by gRPC, at the host of `--host`",
            "whoever reaches it reads the wanted numbers and the SLO headroom of all pools; docs/scaling.md",
            default_shown="none",
        ),
    )
    metrics_port: int | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_EXTERNAL_METRICS_PORT",
            Whole("port", 1, 65535),
            "port at which the Kubernetes API requests external metrics by TLS; the cluster's RBAC decides who may read; at the host of `--host`",
            "needs a certificate, and the rights of an aggregated API; docs/scaling.md",
            default_shown="none",
        ),
    )
    cert_file: Path | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_AUTOSCALERS_TLS_CERT_FILE",
            File(),
            "certificate chain in PEM, for TLS at both ports; read again within a minute after it changed",
            "without it the scaler's port speaks plain HTTP/2",
            default_shown="none",
        ),
    )
    key_file: Path | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_AUTOSCALERS_TLS_KEY_FILE",
            File(),
            "the certificate's private key in PEM",
            "needed with the certificate",
            default_shown="none",
        ),
    )

    def check(self) -> None:
        """Raises InvalidInput for settings that contradict each other."""
        if (self.cert_file is None) != (self.key_file is None):
            raise InvalidInput(CERT_FILES, str(self.cert_file or self.key_file), "set both or neither")
        if self.metrics_port is not None and self.cert_file is None:
            raise InvalidInput(
                CERT_FILES, None, "name a certificate and its key: the Kubernetes API asks at FAIRLEAD_EXTERNAL_METRICS_PORT by TLS only"
            )
