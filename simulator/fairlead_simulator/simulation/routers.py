"""The routers of one run: the distribution of requests over them, and what each of them knows of the others.

The control API tells each router the number of routers. Either one router decides for all, or each router decides
alone. A router that decides alone knows its own requests, the KV events and, if routers exchange load reports, the load
of the other routers some seconds ago. In the model, routers do not share bindings, although the control API of a real
pool reports other routers' sessions.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Literal, NamedTuple

from xxhash import xxh3_64_intdigest

from fairlead.reports.shares import Apart, OthersShare, share_of_others
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.sharing import decider_of
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead.tables import RoutingTable
from fairlead_process.policies import installed_policies
from fairlead_simulator.simulation.event_delivery import EventDelivery
from fairlead_simulator.simulation.events import EventQueue
from fairlead_simulator.simulation.jobs import Job
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.router_links import RouterLinks, See

RouterChange = Literal["none", "restart", "replace", "break", "notice", "connect"]
"""Changes of the routers. `restart` replaces the routers by new routers that keep the state on disk, and `replace` by
new routers without this state. `break` breaks the connections between routers, `notice` lets the routers notice this,
and `connect` connects them again.
"""

SHARE_SECONDS = 1.0
"""Seconds between two load reports of a router, as in real routers."""
MOST_TURNS = 1024
"""Maximum number of kept turns. Only shared prefixes of kept turns can be copied."""


class Turn(NamedTuple):
    """A kept turn; its fields are described in `fairlead.routing.contracts.copies.KeptTurn`."""

    request: RoutingRequest
    began: float
    at: float


class KeptTurns:
    """The latest served turn of each session, for at most MOST_TURNS sessions. A request without a session counts as a
    session.
    """

    def __init__(self) -> None:
        self._turns: OrderedDict[str, Turn] = OrderedDict()

    def keep(self, request: RoutingRequest, now: float) -> None:
        """Keep a served turn. It replaces the previous turn of its session."""
        name = request.session or request.id
        before = self._turns.pop(name, None)
        self._turns[name] = Turn(request, now if before is None else before.began, now)
        if len(self._turns) > MOST_TURNS:
            self._turns.popitem(last=False)

    def newest(self) -> Iterator[Turn]:
        """Yield the kept turns, the newest first."""
        return reversed(self._turns.values())


class Routers:
    """The schedulers of a run, one per router, each with its own seed. `first` is the scheduler of router 0; None =
    make a new scheduler. `see` carries out the dispatches and refusals that routers send to each other.
    """

    def __init__(
        self,
        spec: SimulatedPool,
        table: RoutingTable,
        first: SharedScheduler | None,
        events: EventQueue,
        see: See,
        delivery: EventDelivery | None,
    ) -> None:
        self._spec = spec
        self._delivery = delivery
        self._events = events
        self._links = None if spec.asking_seconds is None else RouterLinks(spec.asking_seconds, events, see)
        self._chance = Random(f"clients/{spec.seed}")
        self._all: list[SharedScheduler] = [] if first is None else [first]
        self._serving = range(spec.routers)
        self._telling = False
        self._add(range(len(self._all), spec.routers), table)

    def __iter__(self) -> Iterator[SharedScheduler]:
        """Iterate over all schedulers, including the schedulers of replaced routers, which still finish their
        requests.
        """
        return iter(self._all)

    @property
    def serving(self) -> tuple[SharedScheduler, ...]:
        """The schedulers that get new requests."""
        return tuple(self._all[number] for number in self._serving)

    @property
    def leading(self) -> SharedScheduler:
        """The scheduler that decides for all routers; if each router decides alone, the first scheduler."""
        if self._links is None:
            return self.serving[0]
        names = {f"router-{number}": number for number in self._serving}
        return self._all[names[decider_of(self._all[0].table.pool, names)]]

    def take(self, job: Job) -> SharedScheduler:
        """Choose the router for a new request, record it in the job, and return the router's scheduler."""
        job.router = self._serving[self._place(job)]
        return self._all[job.router]

    def of(self, job: Job) -> SharedScheduler:
        """Return the scheduler of the router that received the request."""
        return self._all[job.router]

    def start(self, now: float) -> None:
        """Connect the routers to the engines and to each other."""
        for scheduler in self.serving:
            if self._delivery is not None:
                self._delivery.router_started(scheduler.caches, now)
        if self._links is not None:
            self._links.connect(self.leading, self.serving, now)
        elif self._spec.told_seconds is not None and len(self._serving) > 1 and not self._telling:
            self._telling = True
            self._events.at(now + SHARE_SECONDS, self._tell, None)

    def end(self) -> None:
        """Stop sending messages between routers, because the run is over."""
        self._telling = False

    def _tell(self, _: None, now: float) -> None:
        """Send each router the sum of the other routers' load reports, as the control API does."""
        assert self._spec.told_seconds is not None, "only then anything is sent"
        if not self._telling:
            return
        shares = {scheduler.name: (share, 0.0) for scheduler in self.serving if (share := scheduler.share(Apart.NO_ANSWER, now))}
        for scheduler in self.serving:
            told = share_of_others(scheduler.name, scheduler.table.pool, shares)
            self._events.at(now + self._spec.told_seconds, self._be_told, (scheduler, told))
        self._events.at(now + SHARE_SECONDS, self._tell, None)

    def _be_told(self, told: tuple[SharedScheduler, OthersShare], now: float) -> None:
        scheduler, share = told
        scheduler.know_others(replace(share, age_seconds=self._spec.told_seconds or 0.0), now)

    def change(self, what: RouterChange, now: float) -> None:
        """Apply an event to the routers, such as a restart or a break of their connections."""
        if what in ("restart", "replace"):
            self._restart(now, remember=what == "restart")
        elif self._links is not None:
            if what == "break":
                self._links.break_off()
            elif what == "notice":
                self._links.notice(now)
            elif what == "connect":
                self._links.notice(now)  # another break may have begun meanwhile
                self._links.connect(self.leading, self.serving, now)

    def _restart(self, now: float, *, remember: bool) -> None:
        """Replace the serving routers by new routers. The replaced routers get no new requests. If `remember`, the new
        routers know the prefixes that the replaced routers remembered.
        """
        kept = [scheduler.prefix_memories(now) if remember else () for scheduler in self.serving]
        if self._links is not None:
            self._links.break_off()
            self._links.notice(now)
        begin = len(self._all)
        self._serving = range(begin, begin + len(self._serving))
        self._add(self._serving, self._all[-1].table)
        for scheduler, memories in zip(self.serving, kept, strict=True):
            scheduler.recall_prefixes(memories, now)
        self.start(now)

    def _add(self, numbers: range, table: RoutingTable) -> None:
        self._all += [self._build(number, table) for number in numbers]
        for scheduler in self.serving:
            scheduler.know_routers(len(self._serving))

    def _build(self, number: int, table: RoutingTable) -> SharedScheduler:
        return SharedScheduler(
            table,
            f"simulator-{number}" if number else "simulator",
            self._spec.seed + 1_000_003 * number,
            sample_rate=0.0,
            settings=SchedulerSettings(load_samples=False, decisions=False),
            policies=installed_policies(),
        )

    def _place(self, job: Job) -> int:
        count = len(self._serving)
        match self._spec.clients:
            case "random":
                return self._chance.randrange(count)
            case "session":
                return xxh3_64_intdigest((job.session or str(job.index)).encode()) % count
            case "prefix":
                return xxh3_64_intdigest(str(job.blocks[0] if job.blocks else job.index).encode()) % count
            case "in-turn":
                return job.index % count
