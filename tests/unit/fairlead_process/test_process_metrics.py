"""The metrics that every process has about itself."""

import logging
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from fairlead_process.process_metrics import MetricsPage, count_log_lines, process_registry


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    registry, root = process_registry(), logging.getLogger()
    before = list(root.handlers)
    count_log_lines(registry)
    yield registry
    root.handlers = before


async def page(registry: CollectorRegistry, path: str) -> tuple[int, str]:
    sent = []

    async def send(message: object) -> None:
        sent.append(message)

    async def receive() -> dict[str, object]:
        return {}

    await MetricsPage(registry)({"path": path}, receive, send)
    start, body = sent
    assert isinstance(start, dict)
    assert isinstance(body, dict)
    return start["status"], body["body"].decode()


async def test_warnings_and_errors_of_the_log_count_and_nothing_less(registry: CollectorRegistry) -> None:
    log = logging.getLogger("somewhere")
    log.warning("one")
    log.error("two")
    log.error("three")
    log.info("nothing")
    _, text = await page(registry, "/metrics")
    assert 'fairlead_log_lines_total{level="WARNING"} 1.0' in text
    assert 'fairlead_log_lines_total{level="ERROR"} 2.0' in text
    assert "INFO" not in text


async def test_the_page_has_the_processs_own_figures_and_nothing_is_beside_it(registry: CollectorRegistry) -> None:
    status, text = await page(registry, "/metrics")
    assert status == 200
    assert "process_resident_memory_bytes" in text
    assert (await page(registry, "/"))[0] == 404
