"""Feature for the ports at which external autoscalers read metrics. It adds no path to the API."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from fairlead_api.autoscalers.figures import LatestFigures
from fairlead_api.autoscalers.metrics_port import serving_metrics
from fairlead_api.autoscalers.scaler_port import serving_scaler
from fairlead_api.features import Feature
from fairlead_api.infra.autoscaler_ports import METRICS, SCALER, AutoscalerPorts
from fairlead_api.infra.kubernetes import Kubernetes


def feature(figures: LatestFigures, ports: AutoscalerPorts, cluster: Kubernetes) -> Feature:
    """Return the feature that serves the configured ports for external autoscalers. By default, no port is set."""
    return Feature(routes=(), ports=partial(_serving, figures, ports, cluster))


@asynccontextmanager
async def _serving(figures: LatestFigures, ports: AutoscalerPorts, cluster: Kubernetes) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        if ports.scaler is not None:
            await stack.enter_async_context(serving_scaler(figures, ports.scaler, ports.door(SCALER), ports.scaler_certificate))
        if ports.metrics is not None and ports.metrics_certificate is not None:
            serving = serving_metrics(figures, cluster, ports.metrics, ports.door(METRICS), ports.metrics_certificate)
            await stack.enter_async_context(serving)
        yield
