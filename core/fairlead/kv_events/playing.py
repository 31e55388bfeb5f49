"""Plays a recording: applies its batches to an index and looks up each request in the index at the time when the
request was sent. Times are the recorder's.

A batch takes effect at the time when the engine made it, because the index is not responsible for the delay of its
arrival. The engine's timestamps give that time if they follow the recorder's clock; otherwise the time of arrival is
used.

As in a router, two facts besides events are used. A request that was sent and has not ended holds its prompt's blocks,
because an engine schedules requests in order and never evicts blocks in use. A request that has ended holds them until
the next batch arrives, because its last events are still on their way.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush

from fairlead.kv_events.block_index import BlockIndex
from fairlead.kv_events.block_keys import block_keys
from fairlead.kv_events.recordings import RecordedBatch, RecordedRequest
from fairlead.kv_events.sources import Source
from fairlead.kv_events.unseen_blocks import UnseenBlock

_EXPECTED_SECONDS = 2.0
"""Seconds after a request's end for which its blocks are expected although no batch has arrived. llm-d bridges the
delay of events in the same way.
"""

_LONGEST_DELAY_SECONDS = 1.0
"""Longest plausible delay of an event from engine to recorder, in seconds. If a delay is longer, the difference of the
two clocks is not constant.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A batch for the index. `segment` is the number of the stretch of the source's batches, without gaps, to which the
    batch belongs.
    """

    time: float
    """Time when the engine made the batch, in the recorder's time in s."""
    batch: RecordedBatch
    segment: int
    opens_segment: bool


class _Kind(IntEnum):
    """The kinds of steps when a recording is played, in the order in which simultaneous steps are carried out."""

    BATCH = 0
    DONE = 1
    SENT = 2
    EXPIRY = 3


def made_at(batches: Sequence[RecordedBatch]) -> list[float]:
    """Return the time at which each batch of a source was made, in the recorder's time.

    The batch with the shortest delay gives the difference of the clocks. Arrival times are used instead if the
    timestamps go back, or if no single difference explains them.
    """
    arrivals = [batch.arrived for batch in batches]
    stamps = [batch.stamp for batch in batches]
    delays = [arrived - stamp for arrived, stamp in zip(arrivals, stamps, strict=True)]
    if stamps != sorted(stamps) or max(delays, default=0.0) - min(delays, default=0.0) > _LONGEST_DELAY_SECONDS:
        return arrivals
    return [stamp + min(delays) for stamp in stamps]


@dataclass(slots=True, kw_only=True, eq=False)
class _Expected:
    """The blocks that a request causes its source to hold, from the time when the request is sent until events have
    reported the blocks.
    """

    source: Source
    keys: tuple[int, ...]
    number: str
    released: bool = False


class Playing:
    """Plays one recording once, to an index of its own.

    `feeds` are each source's batches, `sizes` each source's tokens per block, and `unseen` the blocks that each source
    held at the beginning of each segment. `placed` gives the source of each request, by the request's position in the
    list. A request that is not in `placed` is assigned to the source that holds most of its prompt.
    """

    def __init__(
        self,
        feeds: Mapping[Source, Sequence[Feed]],
        sizes: Mapping[Source, int],
        unseen: Mapping[Source, Sequence[Sequence[UnseenBlock]]],
        placed: Mapping[int, Source],
    ) -> None:
        self.index = BlockIndex()
        self._feeds = feeds
        self._sizes = sizes
        self._unseen = unseen
        self._placed = placed
        self._ended: dict[Source, list[_Expected]] = defaultdict(list)
        self._expectations = 0

    def cached_tokens(self, requests: Sequence[RecordedRequest]) -> Iterator[tuple[RecordedRequest, int]]:
        """Yield each request in order of sending, with the number of prompt tokens that its instance should have had in
        its cache at that time.
        """
        for source, segments in self._unseen.items():
            if segments:
                self._hold(source, segments[0])
        feeds = [feed for fed in self._feeds.values() for feed in fed]
        moments: list[tuple[float, _Kind, int]] = [(feed.time, _Kind.BATCH, number) for number, feed in enumerate(feeds)]
        moments += [(request.sent, _Kind.SENT, number) for number, request in enumerate(requests)]
        heapify(moments)
        sent: dict[int, _Expected] = {}
        while moments:
            time, kind, number = heappop(moments)
            match kind:
                case _Kind.BATCH:
                    self._take(feeds[number])
                case _Kind.SENT:
                    request = requests[number]
                    placed = self._placed.get(number)
                    if placed is None:
                        yield request, max((self._cached(each, request) for each in self._sources(request)), default=0)
                        continue
                    yield request, self._cached(placed, request)
                    sent[number] = self._expect(placed, request, request.prompt_token_ids)
                    heappush(moments, (max(time, request.done), _Kind.DONE, number))
                case _Kind.DONE:
                    request, before = requests[number], sent[number]
                    computed = (*request.prompt_token_ids, *request.output_token_ids[:-1])
                    sent[number] = self._expect(before.source, request, computed)
                    self._release(before)
                    self._ended[before.source].append(sent[number])
                    heappush(moments, (time + _EXPECTED_SECONDS, _Kind.EXPIRY, number))
                case _Kind.EXPIRY:
                    self._release(sent.pop(number))

    def _sources(self, request: RecordedRequest) -> list[Source]:
        """Return the sources to which the request may have been sent: all ranks of its instance, or all sources if the
        recording names no instance.
        """
        return [source for source in self._sizes if request.instance is None or source.instance == request.instance]

    def _keys(self, source: Source, request: RecordedRequest, token_ids: Sequence[int]) -> tuple[int, ...]:
        return block_keys(token_ids, self._sizes[source], lora_name=request.lora_name, cache_salt=request.cache_salt)

    def _cached(self, source: Source, request: RecordedRequest) -> int:
        """Return the number of prompt tokens that the source should have in its cache. An engine always computes at
        least one token of a prompt, so the prompt's last block never counts in full.
        """
        tokens = request.prompt_token_ids
        return self.index.match(source, self._keys(source, request, tokens[:-1])) * self._sizes[source]

    def _take(self, feed: Feed) -> None:
        batch = feed.batch
        if feed.opens_segment and feed.segment:
            self.index.clear(batch.source)
            self._hold(batch.source, self._unseen[batch.source][feed.segment])
        self.index.apply(batch.source, batch.events)
        for expected in self._ended.pop(batch.source, ()):
            self._release(expected)

    def _hold(self, source: Source, blocks: Sequence[UnseenBlock]) -> None:
        for block in blocks:
            name = block.key.to_bytes(8, "big") if block.block_hash is None else block.block_hash
            self.index.hold(source, name, block.key)

    def _expect(self, source: Source, request: RecordedRequest, token_ids: Sequence[int]) -> _Expected:
        self._expectations += 1
        expected = _Expected(source=source, keys=self._keys(source, request, token_ids), number=str(self._expectations))
        self.index.expect(source, expected.keys, expected.number)
        return expected

    def _release(self, expected: _Expected) -> None:
        if not expected.released:
            expected.released = True
            self.index.no_longer_expect(expected.source, expected.keys, expected.number)
