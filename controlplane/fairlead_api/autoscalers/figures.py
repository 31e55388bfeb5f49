"""The newest figures for autoscalers, as series with labels; figures that are too old count as unknown."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from fairlead_api.infra.errors import Unavailable
from fairlead_api.pools.scaling_figures import ScalingFigures

OLDEST_SECONDS = 60.0
"""Figures are read every ten seconds; after six that failed they say too little about now."""

WANTED, HEADROOM = "fairlead_wanted_instances", "fairlead_slo_headroom"
WINDOWS = {WANTED: None, HEADROOM: 300}
"""The metrics, and over how many seconds each looks back."""


class FiguresUnknown(Unavailable):
    """There are no figures, or they are too old: an autoscaler leaves its number as it is."""

    code = "figures-unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One series' value. `pool` is the name alone, without its namespace; `role` is empty where the metric has none."""

    metric: str
    pool: str
    role: str
    value: float

    @property
    def labels(self) -> dict[str, str]:
        """As an autoscaler selects by them."""
        return {"pool": self.pool} | ({"role": self.role} if self.role else {})


class LatestFigures:
    """The figures that were read last. `now` measures seconds steadily."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._read_at = float("-inf")
        self._figures = ScalingFigures(wanted={}, headroom={})
        self._at: datetime | None = None

    def take(self, figures: ScalingFigures, at: datetime) -> None:
        """These were read at that time."""
        self._figures, self._at, self._read_at = figures, at, self._now()

    def samples(self, namespace: str) -> tuple[Sample, ...]:
        """All series of the namespace's pools. Raises FiguresUnknown."""
        self.at()
        prefix = f"{namespace}/"
        return tuple(one for one in _samples(self._figures, prefix))

    def at(self) -> datetime:
        """When they were read. Raises FiguresUnknown."""
        if self._at is None or self._now() - self._read_at > OLDEST_SECONDS:
            raise FiguresUnknown("the figures for autoscalers are not known now: the database does not give them", 10)
        return self._at


def _samples(figures: ScalingFigures, prefix: str) -> Iterator[Sample]:
    for (pool, role), number in sorted(figures.wanted.items()):
        if pool.startswith(prefix):
            yield Sample(metric=WANTED, pool=pool.removeprefix(prefix), role=role, value=number)
    for pool, share in sorted(figures.headroom.items()):
        if pool.startswith(prefix):
            yield Sample(metric=HEADROOM, pool=pool.removeprefix(prefix), role="", value=share)
