"""The web UI's metrics: its requests, failed calls of the control API, and open live pages."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead_process.process_metrics import process_registry

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
LIVE = "/live"


class WebMetrics:
    """Metrics of the web UI, `fairlead_web_*`. They are in the given registry, or in a new one if none is given."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or process_registry()
        self.seconds = Histogram(
            "fairlead_web_request_seconds",
            "Seconds from a request to the end of its answer. Live streams do not count.",
            ("method", "route", "status"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.api_problems = Counter(
            "fairlead_web_api_problems_total",
            "Requests that failed because a call of the control API failed, by the status of the call; 0 = no answer.",
            ("status",),
            registry=self.registry,
        )
        self.live = Gauge("fairlead_web_live_streams", "Pages that are open and kept up to date.", registry=self.registry)


class Measured:
    """Outermost middleware of the web UI, which counts requests by route. The handler has stored the route in the
    request's `state`.
    """

    def __init__(self, app: ASGIApp, metrics: WebMetrics, now: Callable[[], float] = time.perf_counter) -> None:
        self._app = app
        self._metrics = metrics
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state, status, begun = scope.setdefault("state", {}), 500, self._now()

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if state.get("route") == LIVE:
                    state["is_live"] = True
                    self._metrics.live.inc()
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            if state.get("is_live"):
                self._metrics.live.dec()
            else:
                route = state.get("route") or "other"
                self._metrics.seconds.labels(scope["method"], route, str(status)).observe(self._now() - begun)
