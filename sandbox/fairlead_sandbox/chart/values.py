"""The values with which the chart runs on one machine. Pure; all other values are the chart's defaults."""

from typing import Any

from fairlead_sandbox.ports import HOST
from fairlead_sandbox.process_table import ProcessCounts

RELEASE = "fairlead"
NAMESPACE = "fairlead-system"


def machine_values(counts: ProcessCounts, *, api_port: int, gateway_port: int) -> dict[str, Any]:
    """Return the chart's values for a bundled Postgres and two load balancers, which the service proxy maps to ports of
    the machine.
    """
    return {
        "database": {"bundled": {"enabled": True}},
        "log": {"format": "text"},
        "operator": {"replicas": counts.operators},
        "api": {
            "replicas": counts.apis,
            "publicUrl": f"http://{HOST}:{api_port}",
            "service": {"type": "LoadBalancer", "port": api_port},
        },
        "router": {"replicas": counts.routers, "service": {"type": "LoadBalancer", "port": gateway_port}},
    }
