"""One ASGI app of the control API and the web UI. The web UI calls the API within the process, without a socket."""

import sys

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead_api.access.guards import IN_PROCESS
from fairlead_api.app import Cluster, create_api
from fairlead_api.infra.autoscaler_ports import AutoscalerPorts
from fairlead_api.settings import Settings
from fairlead_web.app import create_web_app
from fairlead_web.frame.metrics import WebMetrics
from fairlead_web.live.clusters import NO_CLUSTERS, ClusterSettings
from fairlead_web.text.outside_links import NO_LINKS, LinkPatterns

SIMULATOR = (sys.executable, "-m", "fairlead_simulator.what_if")
"""The command that runs simulations for the API, which must not depend on the simulator."""

API_PATHS = ("/v1", "/internal", "/healthz", "/readyz", "/metrics", "/openapi.json")
"""Beginnings of the paths that go to the API; all others go to the web UI."""


def create_app(
    settings: Settings,
    public_url: str,
    cluster: Cluster | None = None,
    links: LinkPatterns = NO_LINKS,
    clusters: ClusterSettings = NO_CLUSTERS,
    ports: AutoscalerPorts | None = None,
) -> ASGIApp:
    """Return the ASGI app of API and web UI. Nothing is connected or migrated before the app's lifespan starts.

    `cluster`: replaces the Kubernetes API; None = the real Kubernetes API.
    `links`: links from the pages to other tools.
    `clusters`: the other clusters that the web UI shows.
    `ports`: the ports that other projects' autoscalers call.

    Raises InvalidInput for an invalid `public_url`.
    """
    api = create_api(settings, cluster=cluster, simulator=SIMULATOR, ports=ports)
    web = create_web_app(
        api_urls="http://fairlead-api",
        api_transport=httpx.ASGITransport(app=api, client=(IN_PROCESS, 0)),
        public_url=public_url,
        links=links,
        clusters=clusters,
        metrics=WebMetrics(api.state.telemetry.registry),
    )
    return BesideWeb(api, web)


class BesideWeb:
    """Routes API paths to the API and all others to the web UI. The API handles the lifespan events."""

    def __init__(self, api: ASGIApp, web: ASGIApp) -> None:
        self._api = api
        self._web = web

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        ours = scope["type"] != "http" or any(path == prefix or path.startswith(f"{prefix}/") for prefix in API_PATHS)
        await (self._api if ours else self._web)(scope, receive, send)
