"""The metrics page of an instance's engine."""

from dataclasses import dataclass
from datetime import datetime

from fairlead.engine_metrics import MetricFamily


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMetrics:
    """The engine's own metrics, read at `at` from a page of `size` bytes. They are grouped, and have the engine's own
    names. After a search, only the families that contain the searched text are listed. `unreadable` counts what was
    left out: unreadable lines, and families beyond the first 500.
    """

    instance: str
    at: datetime
    size: int
    families: list[MetricFamily]
    families_in_all: int
    unreadable: int
