"""The connections between simulated routers if one of them, the decider, decides for all. The other routers are called
fronts.
"""

from collections.abc import Callable, Sequence

from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.contracts.sharing import Word
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead_simulator.simulation.events import EventQueue

See = Callable[[Sequence[Dispatch | Refusal], float], None]
"""A function that carries out the dispatches and refusals returned by a scheduler."""


class RouterLink:
    """The connection of one front to the decider. Every message takes `seconds`. If the connection breaks, the messages
    in transit are lost.
    """

    def __init__(self, front: SharedScheduler, decider: SharedScheduler, seconds: float, events: EventQueue, see: See) -> None:
        self._front = front
        self._decider = decider
        self._seconds = seconds
        self._events = events
        self._see = see
        self._back = _WayBack(self)
        self.is_open = True

    def open(self, now: float) -> None:
        """Open the connection. From now on the decider decides for the front."""
        self._decider.join(self._back)
        self._front.ask(self, now)

    def notice(self, now: float) -> None:
        """Close the connection. Both routers are informed of this."""
        self.is_open = False
        self._see(self._front.ask_nobody(now), now)
        self._see(self._decider.leave(self._back, now), now)

    def tell(self, word: Word, now: float) -> None:
        """Send a message from the front to the decider."""
        if self.is_open:
            self._events.at(now + self._seconds, self._arrive, word)

    def answer(self, verdict: Dispatch | Refusal, now: float) -> None:
        """Send a dispatch or refusal from the decider to the front."""
        if self.is_open:
            self._events.at(now + self._seconds, self._come_back, verdict)

    def _arrive(self, word: Word, now: float) -> None:
        if self.is_open:
            self._see(self._decider.hear_front(self._back, word, now), now)

    def _come_back(self, verdict: Dispatch | Refusal, now: float) -> None:
        if self.is_open:
            self._see(self._front.hear(verdict, now), now)


class _WayBack:
    """The direction of a connection from the decider to the front."""

    def __init__(self, link: RouterLink) -> None:
        self._link = link

    def tell(self, verdict: Dispatch | Refusal, now: float) -> None:
        """Send a dispatch or refusal to the front."""
        self._link.answer(verdict, now)


class RouterLinks:
    """All connections between the routers of a run. A message takes `seconds` in each direction."""

    def __init__(self, seconds: float, events: EventQueue, see: See) -> None:
        self._seconds = seconds
        self._events = events
        self._see = see
        self._links: list[RouterLink] = []

    def connect(self, decider: SharedScheduler, fronts: Sequence[SharedScheduler], now: float) -> None:
        """Connect every router in `fronts` to the decider, except the decider itself."""
        self._links = [RouterLink(front, decider, self._seconds, self._events, self._see) for front in fronts if front is not decider]
        for link in self._links:
            link.open(now)

    def break_off(self) -> None:
        """Break all connections. Messages no longer arrive, but no router has noticed this yet."""
        for link in self._links:
            link.is_open = False

    def notice(self, now: float) -> None:
        """Let all routers notice that their connections are broken. From then on each router decides alone."""
        links, self._links = self._links, []
        for link in links:
            link.notice(now)
