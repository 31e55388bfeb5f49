"""Metrics of the spool for operators: its size, the records that were deleted without being sent, and the age of its
oldest batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.reporting.spool import Spool

OLD_SECONDS = 30.0
"""Age in seconds of the oldest unsent batch from which a warning is logged. Also the minimum number of seconds between
two such warnings.
"""

logger = logging.getLogger(__name__)


class SpoolMetrics:
    """Updates the fields of `RouterMetrics` about the spool."""

    def __init__(self, spool: Spool, metrics: RouterMetrics, now: Callable[[], float]) -> None:
        self._spool = spool
        self._metrics = metrics
        self._now = now
        self._warned_at = 0.0

    def add(self, *, records: int, unbatched: int) -> None:
        """Count the records that were put into batches (`records`), and the records that schedulers had dropped before
        (`unbatched`).
        """
        self._metrics.report_records += records
        if unbatched:
            self._metrics.report_drops["unbatched"] += unbatched

    def refresh(self) -> None:
        """Update the metrics from the spool. Log a warning if the spool's oldest batch is too old."""
        metrics, spool = self._metrics, self._spool
        metrics.spool_bytes = spool.size
        metrics.spool_batches = len(spool)
        metrics.reports_set_aside = spool.aside
        for cargo, count in spool.dropped.items():
            metrics.report_drops[cargo] = count
        oldest, now = spool.oldest_written_at(), self._now()
        age = metrics.oldest_unsent_report_seconds = 0.0 if oldest is None else max(0.0, now - oldest)
        if age >= OLD_SECONDS and now - self._warned_at >= OLD_SECONDS:
            self._warned_at = now
            logger.warning("reports wait to be sent", extra={"oldest_seconds": round(age), "batches": len(spool), "bytes": spool.size})
