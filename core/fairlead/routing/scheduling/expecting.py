"""Expecting: the blocks of a prompt count as held by the instance to which the prompt was sent, before the engine's KV
events report them (llm-d calls this speculative indexing).

Blocks are expected from dispatch until an event reports them, but at most until some seconds after the prefill. If the
request is cancelled or lost before its prompt was computed, its blocks are no longer expected.
"""

from collections import deque

from fairlead.kv_events.engine_caches import EngineCaches
from fairlead.kv_events.sources import Source
from fairlead.routing.queues.accounting import TrackedRequest


class Expecting:
    """The blocks that each engine of a pool is assumed to hold before its KV events report them.

    `seconds` is the longest assumed delay of KV events; 0 turns these assumptions off.
    """

    def __init__(self, caches: EngineCaches, seconds: float) -> None:
        self._caches = caches
        self.seconds = seconds
        self._computed: deque[tuple[float, Source, tuple[int, ...], str]] = deque()
        """The assumptions about computed blocks, in the order in which they end. Each has the time of its end, in
        seconds of the scheduler's clock.
        """

    @property
    def is_on(self) -> bool:
        """Whether blocks are assumed to be held before events report them."""
        return self.seconds > 0

    def sent(self, tracked: TrackedRequest) -> None:
        """Assume that the instance to which the request was sent will hold the request's blocks."""
        keys = tracked.request.engine_blocks
        source = self._caches.heard.get(tracked.instance) if keys and self.is_on else None
        if source is not None:
            name = f"{tracked.request.id}/{len(tracked.tried)}"
            self._caches.index.expect(source, keys, name)
            tracked.expected = source, name

    def computed(self, tracked: TrackedRequest, now: float) -> None:
        """Record that the prompt has been computed: its blocks are assumed to be held for `seconds` more."""
        if tracked.expected is not None:
            source, name = tracked.expected
            self._computed.append((now + self.seconds, source, tracked.request.engine_blocks, name))
            tracked.expected = None

    def taken_back(self, tracked: TrackedRequest) -> None:
        """Record that the request leaves the instance. If its prompt is not computed yet, the instance is no longer
        assumed to hold its blocks.
        """
        if tracked.expected is not None:
            source, name = tracked.expected
            self._caches.index.no_longer_expect(source, tracked.request.engine_blocks, name)
            tracked.expected = None

    def expire(self, now: float) -> None:
        """Drop assumptions about blocks that no event has reported in time."""
        while self._computed and self._computed[0][0] <= now:
            _, source, keys, name = self._computed.popleft()
            self._caches.index.no_longer_expect(source, keys, name)
