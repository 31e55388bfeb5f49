"""The metrics page of an instance's engine."""

from dataclasses import dataclass
from datetime import datetime

from fairlead.engine_metrics import MetricFamily


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMetrics:
    """The engine's own metrics, read at `at` from a page of `size` bytes: grouped, under the engine's own names. With a
    search, only the families that contain its text. `unreadable` counts the lines and the families beyond the first 500
    that were left out.
    """

    instance: str
    at: datetime
    size: int
    families: list[MetricFamily]
    families_in_all: int
    unreadable: int
