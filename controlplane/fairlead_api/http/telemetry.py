"""Metrics `fairlead_api_*`, with a bounded number of labels, and the middleware that gives every request an id, a
metric and a log line.
"""

import logging
import re
import time
import uuid
from collections import Counter as Counts
from collections.abc import Mapping, MutableMapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.tables import PoolKey
from fairlead_process.process_metrics import process_registry

_log = logging.getLogger(__name__)
MAX_BODY_BYTES = 32 * 1024 * 1024
"""Maximum size of an accepted request body in bytes; a router's report is far smaller."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Telemetry:
    """The metrics of this process."""

    def __init__(self) -> None:
        self.registry = process_registry()
        buckets = (0.002, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
        self.seconds = Histogram(
            "fairlead_api_request_seconds",
            "Time from a request to the end of its answer.",
            ("method", "route", "status"),
            buckets=buckets,
            registry=self.registry,
        )
        self.ignored = Counter(
            "fairlead_api_report_rows_ignored_total", "Rows of routers' reports that were dropped.", ("reason",), registry=self.registry
        )
        self.lost_moves = Counter(
            "fairlead_api_lost_moves_total",
            "Session moves of routers that were not stored, because another change of the session came first.",
            ("pool",),
            registry=self.registry,
        )
        self.subscribers = Gauge("fairlead_api_router_streams", "Router streams open at this process.", registry=self.registry)
        self.live = Gauge("fairlead_api_live_streams", "Live (SSE) streams open at this process.", registry=self.registry)
        self.rollup_lag = Gauge(
            "fairlead_api_rollup_lag_seconds",
            "Seconds by which the roll-ups of the most delayed pool are overdue; above 30 s its figures are not known.",
            registry=self.registry,
        )
        self.went_back = Gauge(
            "fairlead_api_database_went_back_timestamp_seconds",
            "Time at which the database was last found to have lost committed data (Unix seconds); 0 if there was no loss within a day.",
            registry=self.registry,
        )
        self.wanted = Gauge(
            "fairlead_api_wanted_instances",
            "Desired instances of a role: the number that the operator sets, or would set in mode Advise.",
            ("pool", "role"),
            registry=self.registry,
        )
        self.headroom = Gauge(
            "fairlead_api_slo_headroom",
            "Share of judged requests within TTFT and TPOT in the last 5 minutes minus the share that is the goal (0.02 = 2 points above it); "
            "absent while none is judged.",
            ("pool",),
            registry=self.registry,
        )
        self.task_headroom = Gauge(
            "fairlead_api_task_slo_headroom",
            "Share of the tasks ended in the last hour that met their target, minus the goal; absent while none is judged.",
            ("pool", "priority_class"),
            registry=self.registry,
        )
        self.cost_per_hour = Gauge(
            "fairlead_api_cost_per_hour",
            "Cost of an hour of a pool's living instances at their present prices, in the currency.",
            ("pool", "currency"),
            registry=self.registry,
        )
        self.jobs = Counter("fairlead_api_jobs_total", "Background jobs run.", ("job", "result"), registry=self.registry)

    def count_report(self, ignored: Counts[str], lost_moves: Counts[PoolKey]) -> None:
        """Count what was not stored of routers' reports: rows by reason, and moves by pool."""
        for reason, count in ignored.items():
            self.ignored.labels(reason).inc(count)
        for pool, count in lost_moves.items():
            self.lost_moves.labels(str(pool)).inc(count)

    def tell_scaling(
        self, wanted: Mapping[tuple[str, str], int], headroom: Mapping[str, float], of_tasks: Mapping[tuple[str, str], float]
    ) -> None:
        """Set three scaling metrics: the `wanted` number of instances by pool and role, the `headroom` (a share of
        capacity) by pool, and the headroom by pool and priority class (`of_tasks`). A pool that is missing in an
        argument is removed from that argument's metric.
        """
        for gauge in (self.wanted, self.headroom, self.task_headroom):
            gauge.clear()
        for (pool, role), number in wanted.items():
            self.wanted.labels(pool, role).set(number)
        for pool, share in headroom.items():
            self.headroom.labels(pool).set(share)
        for (pool, name), share in of_tasks.items():
            self.task_headroom.labels(pool, name).set(share)

    def tell_cost(self, rates: Mapping[tuple[str, str], int]) -> None:
        """Set the metric of present costs per hour in micro-units, by pool and currency. A pool that is missing in
        `rates` is removed from the metric.
        """
        self.cost_per_hour.clear()
        for (pool, currency), micros in rates.items():
            self.cost_per_hour.labels(pool, currency).set(micros / 1_000_000)

    def exposition(self) -> tuple[bytes, str]:
        """Return the metrics as text, and the content type of that text."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


class Instrument:
    """The API's outermost middleware, which gives every request an id, a metric and a log line."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex[:16]
        scope.setdefault("state", {})["request_id"] = request_id
        status = 500
        begun = time.perf_counter()

        taken = 0

        async def bounded() -> MutableMapping[str, Any]:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > MAX_BODY_BYTES:
                raise HTTPException(413, f"the body is over {MAX_BODY_BYTES} bytes; send less at once")
            return message

        async def noted(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._app(scope, bounded, noted)
        finally:
            seconds = time.perf_counter() - begun
            route = getattr(scope.get("route"), "path", None) or "unmatched"
            self._telemetry.seconds.labels(scope["method"], route, str(status)).observe(seconds)
            level = logging.WARNING if status >= 500 else logging.DEBUG
            fields = {
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": round(seconds * 1000, 1),
                "request": request_id,
            }
            _log.log(level, "request answered", extra={**fields, "actor": scope["state"].get("actor")})
