"""Sends spans to an OpenTelemetry collector by OTLP over HTTP, with OpenTelemetry's own exporter, in a thread.

The thread is a daemon, and every wait for it is bounded. So a collector that is slow or cannot be reached costs spans,
which are counted, but no time. OpenTelemetry is an extra of the distribution, so it is imported only if traces are
exported. It reads environment variables of its own, such as `OTEL_EXPORTER_OTLP_HEADERS` and
`OTEL_RESOURCE_ATTRIBUTES`.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fairlead.errors import InvalidInput
from fairlead_router.tracing.spans import Kind, Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

MOST_WAITING = 1024
"""Maximum number of traces in the queue. Further traces are dropped."""
MOST_AT_ONCE = 512
"""Number of spans at which a request to the collector gets no further traces. Traces are not divided, so a request may
have more spans.
"""
TRACES_PATH = "/v1/traces"
SERVICE = "fairlead-router"
SCOPE = "fairlead.router"

SENT, DROPPED, FAILED = "sent", "dropped", "failed"

_SDK_LOGGER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"

logger = logging.getLogger(__name__)

Send = Callable[[Sequence[Span]], str]
"""A function that sends spans. It returns the reason why sending failed, or "" after success."""


class SpanExport:
    """Exports spans to the collector. A thread calls `send`, one call at a time."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: queue.Queue[tuple[Span, ...] | None] = queue.Queue(MOST_WAITING)
        self._is_failing = False
        self.counts: Counter[str] = Counter({SENT: 0, DROPPED: 0, FAILED: 0})
        """Number of spans by outcome: `sent`, `dropped` (the queue was full) or `failed` (the collector did not accept
        them).
        """
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def start(self) -> None:
        """Start the thread that sends."""
        self._thread.start()

    def offer(self, spans: tuple[Span, ...]) -> None:
        """Queue the spans of a trace, or drop them if the queue is full. Never waits."""
        try:
            self._waiting.put_nowait(spans)
        except queue.Full:
            self.counts[DROPPED] += len(spans)

    def close(self, seconds: float) -> None:
        """Send the queued spans for at most `seconds`. The other spans are lost."""
        self._closing.set()
        with suppress(queue.Full):
            self._waiting.put_nowait(None)  # wakes the thread; where there is no room for it, it is awake
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            batch = self._next()
            if batch:
                self._deliver(batch)
            if self._closing.is_set() and self._waiting.empty():
                return

    def _next(self) -> list[Span]:
        """Wait for queued spans, and return the spans for the next call of `send`; empty if only `close` woke the
        thread.
        """
        batch = list(self._waiting.get() or ())
        while len(batch) < MOST_AT_ONCE:
            try:
                batch += self._waiting.get_nowait() or ()
            except queue.Empty:
                break
        return batch

    def _deliver(self, batch: Sequence[Span]) -> None:
        try:
            problem = self._send(batch)
        except Exception as error:  # noqa: BLE001  # a span that cannot be written must not end the thread
            problem = f"{type(error).__name__}: {error}"
        if bool(problem) is not self._is_failing:
            self._is_failing = bool(problem)
            self._say(problem)
        self.counts[FAILED if problem else SENT] += len(batch)

    def _say(self, problem: str) -> None:
        if problem:
            logger.warning("traces cannot be sent; this is logged again only after a success", extra={"error": problem})
        else:
            logger.info("traces are sent again")


def otlp_sender(endpoint: str, router: str) -> Send:
    """Return a function that sends spans to the collector at the URL `endpoint`, which may end in the path for traces.
    Raises InvalidInput if OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import SpanExportResult
    except ImportError:
        raise InvalidInput("FAIRLEAD_OTLP_ENDPOINT", endpoint, "install fairlead[tracing], or leave the setting out") from None
    said = _LastWords(logging.getLogger(_SDK_LOGGER))
    url = endpoint if endpoint.endswith(TRACES_PATH) else endpoint + TRACES_PATH
    exporter = OTLPSpanExporter(endpoint=url)
    name = os.environ.get("OTEL_SERVICE_NAME") or SERVICE
    resource = Resource.create({"service.name": name, "service.instance.id": router})

    def send(spans: Sequence[Span]) -> str:
        said.words = ""
        result = exporter.export([as_sdk_span(span, resource) for span in spans])
        return "" if result is SpanExportResult.SUCCESS else said.words or "the collector did not accept the spans"

    return send


class _LastWords(logging.Handler):
    """A log handler that keeps the last message of the logger `theirs`, which belongs to OpenTelemetry's exporter. So
    the exporter's failures are not logged one by one.
    """

    def __init__(self, theirs: logging.Logger) -> None:
        super().__init__()
        self.words = ""
        theirs.handlers = [self]
        theirs.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.words = record.getMessage()


def as_sdk_span(span: Span, resource: Any) -> ReadableSpan:
    """Return the span in the form that OpenTelemetry's exporters accept."""
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.status import Status, StatusCode

    kinds = {Kind.SERVER: SpanKind.SERVER, Kind.CLIENT: SpanKind.CLIENT, Kind.INTERNAL: SpanKind.INTERNAL}
    error = {} if span.error is None else {"error.type": span.error}
    return ReadableSpan(
        name=span.name,
        context=_context(span, span.span_id),
        parent=None if span.parent is None else _context(span, span.parent),
        resource=resource,
        attributes={**span.attributes, **error},
        events=[Event(one.name, one.attributes, _nanoseconds(one.at)) for one in span.events],
        kind=kinds[span.kind],
        status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR),
        start_time=_nanoseconds(span.start),
        end_time=_nanoseconds(span.end),
        instrumentation_scope=InstrumentationScope(SCOPE),
    )


def _context(span: Span, span_id: str) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags, TraceState

    state = TraceState.from_header([span.state]) if span.state else None
    return SpanContext(
        int(span.trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED), trace_state=state
    )


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
