"""Metrics of reports that wait in the spool."""

from pathlib import Path

import pytest

from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.reporting.collecting import encode_batches
from fairlead_router.reporting.spool import Spool
from fairlead_router.reporting.spool_metrics import SpoolMetrics
from fairlead_testing.builders.reports import a_change, batch_ids


def test_the_age_of_the_oldest_unsent_report_is_a_metric_and_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = iter([5.0])
    spool = Spool(tmp_path, 1000, lambda: next(clock))
    spool.open()
    metrics = RouterMetrics()
    now = 5.0
    watched = SpoolMetrics(spool, metrics, lambda: now)
    (batch,) = encode_batches("router-0", {"bindings": [a_change("a")]}, batch_ids())
    kept = spool.append(batch.cargo, batch.records, batch.content)
    now = 45.0
    watched.refresh()
    watched.refresh()
    assert metrics.oldest_unsent_report_seconds == 40.0
    assert [record.message for record in caplog.records] == ["reports wait to be sent"]
    spool.discard([kept])
    watched.refresh()
    assert metrics.oldest_unsent_report_seconds == 0.0
