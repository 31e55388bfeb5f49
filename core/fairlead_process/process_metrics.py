"""Metrics that every process reports about itself: CPU, memory, open files, and the number of log lines that are
warnings or errors.
"""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, ProcessCollector, generate_latest

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def process_registry() -> CollectorRegistry:
    """Return a registry with the figures of this process, to which a component adds its own."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


def count_log_lines(registry: CollectorRegistry) -> None:
    """Count lines of the log by level from now on. Called once in a process."""
    lines = Counter("fairlead_log_lines_total", "Lines of the process's log at level WARNING and above.", ("level",), registry=registry)
    logging.getLogger().addHandler(_Counting(lines))


class _Counting(logging.Handler):
    """A log handler that counts log records and writes nothing."""

    def __init__(self, lines: Counter) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.labels(record.levelname).inc()


class MetricsPage:
    """An ASGI application with one page, `/metrics`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = scope["path"] == "/metrics"
        body, kind = (generate_latest(self._registry), CONTENT_TYPE_LATEST) if found else (b"there is only /metrics\n", "text/plain")
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200 if found else 404, "headers": headers})
        await send({"type": "http.response.body", "body": body})
