"""Follows the KV events of one instance with a subscription for each data-parallel rank, and decides whether these
events can be used.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import zmq

from fairlead.kv_events.engine_caches import EngineCaches
from fairlead.kv_events.sequences import SourceState
from fairlead.kv_events.sources import Source
from fairlead_router.kv_events.central import CentralPort, CentralSubscription
from fairlead_router.kv_events.reading import SlicedReader, Socket
from fairlead_router.kv_events.sources import EventSource
from fairlead_router.kv_events.subscriptions import Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReading:
    """The state of one rank's KV events, for metrics."""

    rank: int
    state: str
    """The value of a `SourceState`, or `disconnected`, or `wrong-block-size`."""
    events: int
    lag_seconds: float | None
    blocks: int
    gaps: int
    replays: int
    restarts: int
    batches_lost: int
    unreadable: int


STATES = (*SourceState, "disconnected", "wrong-block-size")


class InstanceEvents:
    """Follows all event sources of one instance of a pool, from construction until `close`.

    `caches`: the pool's index. `target`: a function from the index of an engine's rank to the rank's target
    (`fairlead.targets`). A rank's events are used (`EngineCaches.heard`) while its source is settled, all ranks have
    the pool's block size, and the targets of all ranks differ.
    """

    def __init__(
        self,
        context: "zmq.Context[Socket]",
        instance: str,
        told: Sequence[EventSource],
        caches: EngineCaches,
        target: Callable[[int], str],
        now: Callable[[], float],
        reader: SlicedReader,
        central: CentralPort | None = None,
    ) -> None:
        """Create the object without opening a source; `open_some` opens the sources. `central` is the port to which
        engines connect, or None if the router has no such port.
        """
        self._target = target
        self._heard: set[str] = set()
        self.instance = instance
        self.told = tuple(told)
        self._caches = caches
        self._wrong_size = False
        self.subscriptions: list[Subscription] = []
        """The open subscriptions."""
        self._unopened = deque(told)
        self._make_subscription = partial(_subscription, central, context, caches=caches, now=now, reader=reader, changed=self._judge)

    def open_some(self, most: int) -> int:
        """Open up to `most` of the sources that are not open yet, and return the number of sources opened. Raises
        zmq.ZMQError.
        """
        opened = min(most, len(self._unopened))
        for _ in range(opened):
            one = self._unopened.popleft()
            self.subscriptions.append(self._make_subscription(one, Source(instance=self.instance, rank=one.rank)))
        return opened

    @property
    def is_connected(self) -> bool:
        """Whether all sources are open and can be reached."""
        return not self._unopened and all(one.connected for one in self.subscriptions)

    @property
    def unheard(self) -> list[Subscription]:
        """The subscriptions whose engine connects to routers, but has sent no messages to this router."""
        return [one for one in self.subscriptions if one.told.connects and not one.connected]

    @property
    def has_wrong_size(self) -> bool:
        """Whether the instance's block size differs from the pool's block size."""
        return self._wrong_size

    def check(self) -> None:
        """Repeat overdue requests for replays, and decide again which sources can be used. Call about once a second."""
        for one in self.subscriptions:
            one.check_replay()
        self._judge()

    def wake(self) -> None:
        """Try again to reach sources that rest because they could not be reached. Call it when the engine responds
        again.
        """
        for one in self.subscriptions:
            one.wake()

    @property
    def faults(self) -> int:
        """Number of messages that could not be decoded, plus the number of seconds with too many bytes (`floods`)."""
        return sum(one.unreadable + one.floods for one in self.subscriptions)

    def close(self) -> None:
        """Stop following the instance, and remove its blocks from the pool's index."""
        for one in self.subscriptions:
            one.close()
            self._caches.index.drop(one.source)
        self._hear({})

    def readings(self) -> list[EventReading]:
        """Return one reading for each rank."""
        return [self._reading(one) for one in self.subscriptions]

    def _reading(self, one: Subscription) -> EventReading:
        counts = one.counts
        state = "wrong-block-size" if self._wrong_size else one.state.value if one.connected else "disconnected"
        return EventReading(
            rank=one.source.rank,
            state=state,
            events=one.events,
            lag_seconds=one.lag_seconds,
            blocks=sum(self._caches.index.blocks(one.source).values()),
            gaps=counts.gaps,
            replays=counts.replays,
            restarts=counts.restarts,
            batches_lost=counts.lost,
            unreadable=one.unreadable,
        )

    def _judge(self) -> None:
        sources = [one.source for one in self.subscriptions]
        sizes = {size for source in sources if (size := self._caches.index.block_size(source)) is not None}
        self._wrong_size = any(not self._caches.takes_size(size) for size in sizes)
        settled = [] if self._wrong_size else [one for one in self.subscriptions if one.is_settled]
        targets = [self._target(one.source.rank) for one in self.subscriptions]
        if len(set(targets)) < len(targets):
            settled = []  # it is not known yet that they are ranks, and nobody can say which will compute a prompt
        self._hear({self._target(one.source.rank): one for one in settled})

    def _hear(self, settled: Mapping[str, Subscription]) -> None:
        for target in self._heard - settled.keys():
            self._caches.ignore(target)
        for target, one in settled.items():
            self._caches.hear(target, one.source, complete=one.state is not SourceState.INCOMPLETE)
        self._heard = set(settled)


def _subscription(
    central: CentralPort | None,
    context: "zmq.Context[Socket]",
    told: EventSource,
    source: Source,
    *,
    caches: EngineCaches,
    now: Callable[[], float],
    reader: SlicedReader,
    changed: Callable[[], None],
) -> Subscription:
    """Return the subscription to a source. If the engine connects to routers, this router does not connect to the
    source's endpoint. It receives the source's events at its central port and from replays.
    """
    if told.connects:
        return CentralSubscription(central, context, told, source, caches, now, reader, changed)
    return Subscription(context, told, source, caches, now, reader, changed)
