"""SLO samples: how many requests of each priority class met the pool's objectives, second by second."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from fairlead.latency_cells import cell_of
from fairlead.reports.objectives import MAX_CELLS, SloSample
from fairlead.tables import PoolKey, RoutingTable

Key = tuple[int, str, int | None]
"""A second, a priority class and a version of the SLO."""


@dataclass(slots=True)
class _Ended:
    """The counts of request outcomes for one `Key`."""

    judged: int = 0
    within_slo: int = 0
    ttft_within_slo: int = 0
    tpot_within_slo: int = 0
    tpot_total: int = 0
    refused: int = 0
    failed: int = 0
    cells: dict[int, int] = field(default_factory=dict)


class SloSeconds:
    """A counter of the outcomes of requests, emptied by `take`. It counts nothing unless `kept`.

    `limit` is the maximum number of keys between two calls of `take`; `dropped` counts the requests that did not fit.
    """

    def __init__(self, pool: PoolKey, limit: int, *, kept: bool = True) -> None:
        self._pool = pool
        self._limit = limit
        self._wanted = kept
        self._paused = False
        self._ended: dict[Key, _Ended] = {}
        self.dropped = 0

    def pause(self) -> None:
        """Count only this router's own refusals from now on, because another router counts served and failed
        requests.
        """
        self._paused = True

    def resume(self) -> None:
        """Count all outcomes again."""
        self._paused = False

    def completed(self, priority_class: str, table: RoutingTable, now: float, ttft_seconds: float, tpot_seconds: float | None) -> None:
        """Count a request whose latencies are compared with the objectives. Either it was completed and its first token
        was observed, or its client disconnected after the first token or after the TTFT target had passed.
        """
        if self._paused or (ended := self._of(priority_class, table, now)) is None:
            return
        ttft_kept = ttft_seconds < table.slo.ttft_seconds
        tpot_kept = tpot_seconds is None or tpot_seconds < table.slo.tpot_seconds
        ended.judged += 1
        ended.ttft_within_slo += ttft_kept
        ended.within_slo += ttft_kept and tpot_kept
        if tpot_seconds is not None:
            ended.tpot_total += 1
            ended.tpot_within_slo += tpot_kept
        cell = cell_of(ttft_seconds, tpot_seconds)
        ended.cells[cell] = ended.cells.get(cell, 0) + 1

    def failed(self, priority_class: str, table: RoutingTable, now: float) -> None:
        """Count a request that failed and will not be retried."""
        if not self._paused and (ended := self._of(priority_class, table, now)) is not None:
            ended.failed += 1

    def refused(self, priority_class: str, table: RoutingTable, now: float) -> None:
        """Count a request that was refused."""
        if (ended := self._of(priority_class, table, now)) is not None:
            ended.refused += 1

    def _of(self, priority_class: str, table: RoutingTable, now: float) -> _Ended | None:
        if not self._wanted:
            return None
        key = (int(now), priority_class, table.slo_version)
        ended = self._ended.get(key)
        if ended is None:
            if len(self._ended) >= self._limit:
                self.dropped += 1
                return None
            ended = self._ended[key] = _Ended()
        return ended

    def take(self, now: float, *, final: bool) -> tuple[SloSample, ...]:
        """Return the finished seconds in which requests ended; with `final`, also the current second."""
        ready = [key for key in self._ended if key[0] < int(now) or final]
        return tuple(sample for key in ready for sample in self._samples(key, self._ended.pop(key)))

    def _samples(self, key: Key, ended: _Ended) -> Iterator[SloSample]:
        second, priority_class, version = key
        cells = sorted(ended.cells.items())
        first = cells[:MAX_CELLS]
        yield SloSample(
            pool=self._pool,
            second=second,
            priority_class=priority_class,
            slo_version=version,
            judged=ended.judged,
            within_slo=ended.within_slo,
            ttft_within_slo=ended.ttft_within_slo,
            tpot_within_slo=ended.tpot_within_slo,
            tpot_total=ended.tpot_total,
            refused=ended.refused,
            failed=ended.failed,
            cells=tuple(cell for cell, _ in first),
            counts=tuple(count for _, count in first),
        )
        for start in range(MAX_CELLS, len(cells), MAX_CELLS):
            more = cells[start : start + MAX_CELLS]
            yield SloSample(
                pool=self._pool,
                second=second,
                priority_class=priority_class,
                slo_version=version,
                cells=tuple(cell for cell, _ in more),
                counts=tuple(count for _, count in more),
            )
