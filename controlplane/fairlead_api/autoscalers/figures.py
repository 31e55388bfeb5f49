"""The newest figures for autoscalers, as labelled series. Figures that are too old count as unknown."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from fairlead_api.infra.errors import Unavailable
from fairlead_api.pools.scaling_figures import ScalingFigures

OLDEST_SECONDS = 60.0
"""Maximum age of figures in seconds. Figures are read every ten seconds; after six failed reads, old figures say too
little about the present.
"""

WANTED, HEADROOM = "fairlead_wanted_instances", "fairlead_slo_headroom"
WINDOWS = {WANTED: None, HEADROOM: 300}
"""The metrics, each with the number of seconds over which it is computed; None for a metric without a window."""


class FiguresUnknown(Unavailable):
    """There are no figures, or the figures are too old. An autoscaler that gets this error leaves its number of
    replicas unchanged.
    """

    code = "figures-unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The value of one series. `pool` is the pool's name without its namespace; `role` is empty if the metric has no
    role.
    """

    metric: str
    pool: str
    role: str
    value: float

    @property
    def labels(self) -> dict[str, str]:
        """The series' labels, by which an autoscaler selects."""
        return {"pool": self.pool} | ({"role": self.role} if self.role else {})


class LatestFigures:
    """Holds the newest figures. `now` returns monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._read_at = float("-inf")
        self._figures = ScalingFigures(wanted={}, headroom={})
        self._at: datetime | None = None

    def take(self, figures: ScalingFigures, at: datetime) -> None:
        """Replace the held figures by `figures`, which were read at `at`."""
        self._figures, self._at, self._read_at = figures, at, self._now()

    def samples(self, namespace: str) -> tuple[Sample, ...]:
        """Return all series of the namespace's pools. Raises FiguresUnknown."""
        self.at()
        prefix = f"{namespace}/"
        return tuple(one for one in _samples(self._figures, prefix))

    def at(self) -> datetime:
        """Return the time at which the figures were read. Raises FiguresUnknown."""
        if self._at is None or self._now() - self._read_at > OLDEST_SECONDS:
            raise FiguresUnknown("the figures for autoscalers are unknown now: they could not be read from the database", 10)
        return self._at


def _samples(figures: ScalingFigures, prefix: str) -> Iterator[Sample]:
    for (pool, role), number in sorted(figures.wanted.items()):
        if pool.startswith(prefix):
            yield Sample(metric=WANTED, pool=pool.removeprefix(prefix), role=role, value=number)
    for pool, share in sorted(figures.headroom.items()):
        if pool.startswith(prefix):
            yield Sample(metric=HEADROOM, pool=pool.removeprefix(prefix), role="", value=share)
