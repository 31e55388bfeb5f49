"""The export of spans is bounded and counted, and nothing waits for it."""

import threading
from collections.abc import Callable, Sequence

import pytest

from fairlead.errors import InvalidInput
from fairlead_router.tracing import exporting
from fairlead_router.tracing.exporting import DROPPED, FAILED, MOST_AT_ONCE, MOST_WAITING, SENT, SpanExport, otlp_sender
from fairlead_router.tracing.spans import Kind, Span
from fairlead_testing.waiting import PATIENCE_SECONDS

SPAN = Span(
    name="chat", kind=Kind.SERVER, trace_id="4b" * 16, span_id="0a" * 8, parent=None, state="", start=1.0, end=2.0, attributes={"a": 1}
)
TRACE = (SPAN, SPAN)


class Collector:
    """A collector that takes batches once the test lets it."""

    def __init__(self, answer: Callable[[], str] = str) -> None:
        self.may = threading.Event()
        self.asked = threading.Event()
        self.batches: list[int] = []
        self._answer = answer

    def take(self, spans: Sequence[Span]) -> str:
        self.asked.set()
        assert self.may.wait(PATIENCE_SECONDS)
        self.batches.append(len(spans))
        return self._answer()


def test_what_a_slow_collector_does_not_take_in_time_is_dropped_and_counted() -> None:
    collector = Collector()
    export = SpanExport(collector.take)
    export.start()
    export.offer(TRACE)
    assert collector.asked.wait(PATIENCE_SECONDS)
    for _ in range(MOST_WAITING + 7):
        export.offer(TRACE)
    assert export.counts[DROPPED] == 7 * len(TRACE)
    collector.may.set()
    export.close(PATIENCE_SECONDS)
    assert export.counts[SENT] == (1 + MOST_WAITING) * len(TRACE)
    assert max(collector.batches) == MOST_AT_ONCE


def test_closing_sends_what_waits_and_does_not_wait_for_a_collector_that_hangs() -> None:
    collector = Collector()
    export = SpanExport(collector.take)
    export.start()
    export.offer(TRACE)
    export.close(0.0)
    assert export.counts[SENT] == 0
    collector.may.set()


def test_a_sender_that_raises_costs_its_batch_alone() -> None:
    problems = ["", "x"]

    def answer() -> str:
        if problems.pop():
            raise ValueError("x")
        return ""

    collector = Collector(answer)
    collector.may.set()
    export = SpanExport(collector.take)
    export.offer((SPAN,) * MOST_AT_ONCE)
    export.offer(TRACE)
    export.start()
    export.close(PATIENCE_SECONDS)
    assert (export.counts[FAILED], export.counts[SENT]) == (MOST_AT_ONCE, len(TRACE))


def test_without_the_extra_the_setting_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(InvalidInput, match=r"FAIRLEAD_OTLP_ENDPOINT.*fairlead\[tracing\]"):
        otlp_sender("http://collector:4318", "router-0")
    assert exporting.TRACES_PATH == "/v1/traces"
