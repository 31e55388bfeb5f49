"""The routers of one run: requests go to them in turn, and each knows only what it sent itself and what it is told.

They know how many they are, as the control API tells them. They share no bindings: what it would tell them of each
other's sessions is left out.
"""

from collections.abc import Callable, Iterator

from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import RoutingTable
from fairlead_simulator.simulation.jobs import Job


class Routers:
    """Schedulers, each built by `build` from its number and the table in force; `first` is that of number 0 if there is
    one already.
    """

    def __init__(
        self, build: Callable[[int, RoutingTable], PoolScheduler], count: int, table: RoutingTable, first: PoolScheduler | None
    ) -> None:
        self._build = build
        self._all: list[PoolScheduler] = [] if first is None else [first]
        self._serving = range(count)
        self._start(range(len(self._all), count), table)
        self._tell_count()

    def __iter__(self) -> Iterator[PoolScheduler]:
        """Every scheduler, also those that only end what they have begun."""
        return iter(self._all)

    @property
    def serving(self) -> tuple[PoolScheduler, ...]:
        """Those that get new requests."""
        return tuple(self._all[number] for number in self._serving)

    def take(self, job: Job) -> PoolScheduler:
        """The scheduler that a new request goes to."""
        job.router = self._serving[job.index % len(self._serving)]
        return self._all[job.router]

    def of(self, job: Job) -> PoolScheduler:
        """The scheduler that has the request."""
        return self._all[job.router]

    def restart(self) -> tuple[PoolScheduler, ...]:
        """Others take their places, knowing nothing; the old ones get no more requests. Returns the new ones."""
        begin = len(self._all)
        self._serving = range(begin, begin + len(self._serving))
        self._start(self._serving, self._all[-1].table)
        self._tell_count()
        return self.serving

    def _start(self, numbers: range, table: RoutingTable) -> None:
        self._all += [self._build(number, table) for number in numbers]

    def _tell_count(self) -> None:
        for scheduler in self.serving:
            scheduler.know_routers(len(self._serving))
