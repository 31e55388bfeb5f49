"""Answers with numbers over time as tables: a row for each number, or for each step. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from fairlead.instances import InstanceState, Role
from fairlead_client.resources.advice import Trends
from fairlead_client.resources.heatmaps import Heatmap
from fairlead_client.resources.series import Series


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapCell:
    """A number of a heatmap: the maximum or mean of the step that begins `at`. Cells without a number are left out."""

    instance: str
    state: InstanceState
    role: Role
    at: datetime
    value: float
    breach: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesValue:
    """A number of a line, of the `step_seconds` that begin `at`. Steps of which nothing is known are left out."""

    metric: str
    part: str | None
    unit: str
    at: datetime
    step_seconds: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendStep:
    """What became of a pool's requests in the step that begins `at`."""

    pool: str
    at: datetime
    judged: int
    in_time: int
    refused: int
    failed: int
    ttft_seconds: float | None


def heatmap_cells(found: Heatmap) -> Iterator[HeatmapCell]:
    """Row by row, oldest first."""
    starts = [found.start + timedelta(seconds=column * found.step_seconds) for column in range(found.columns)]
    for row in found.rows:
        breaches = frozenset(row.breaches)
        for column, (at, value) in enumerate(zip(starts, row.values, strict=True)):
            if value is not None:
                yield HeatmapCell(instance=row.instance, state=row.state, role=row.role, at=at, value=value, breach=column in breaches)


def series_values(found: Series) -> Iterator[SeriesValue]:
    """Line by line, oldest first."""
    for line in found.lines:
        for step, value in enumerate(line.values):
            if value is not None:
                at = line.start + timedelta(seconds=step * line.step_seconds)
                yield SeriesValue(metric=line.metric, part=line.part, unit=line.unit, at=at, step_seconds=line.step_seconds, value=value)


def trend_steps(found: Trends) -> Iterator[TrendStep]:
    """Pool by pool, oldest first."""
    for one in found.pools:
        counts = zip(one.judged, one.in_time, one.refused, one.failed, one.ttft_seconds, strict=True)
        for step, (judged, in_time, refused, failed, ttft) in enumerate(counts):
            at = found.start + timedelta(seconds=step * found.step_seconds)
            yield TrendStep(pool=one.pool, at=at, judged=judged, in_time=in_time, refused=refused, failed=failed, ttft_seconds=ttft)
