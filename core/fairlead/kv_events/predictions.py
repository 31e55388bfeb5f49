"""Compares an index with the engine: the prompt tokens that the index predicts as cached, and the tokens that the
engine counted.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from fairlead.kv_events.block_index import IndexCounts
from fairlead.kv_events.engine_hashes import EngineHashing, recognise
from fairlead.kv_events.events import BlockHash, EventKind
from fairlead.kv_events.playing import Feed, Playing, made_at
from fairlead.kv_events.recordings import RecordedBatch, RecordedRequest
from fairlead.kv_events.sequences import SequenceCounts, SequenceTracker
from fairlead.kv_events.sources import Source
from fairlead.kv_events.unseen_blocks import TokenSequence, UnseenBlocks, token_sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The predicted and the counted cached prompt tokens of one request."""

    name: int | str
    prompt_tokens: int
    predicted_cached_tokens: int
    reported_cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The predictions for a recording, and the irregularities found while playing it."""

    predictions: tuple[Prediction, ...]
    sources: int
    hashing: EngineHashing | None
    """The engine's hash algorithm and seed; None if they could not be determined."""
    unseen_blocks: int
    """Number of blocks that no recorded event stored but that, as later events show, the cache held at the recording's
    beginning or stored in batches that the recording lacks.
    """
    sequences: SequenceCounts
    index: IndexCounts

    @property
    def predicted_cached_tokens(self) -> int:
        return sum(each.predicted_cached_tokens for each in self.predictions)

    @property
    def reported_cached_tokens(self) -> int:
        return sum(each.reported_cached_tokens for each in self.predictions)

    @property
    def exact_requests(self) -> int:
        """Number of requests whose predicted number of cached tokens equals the engine's count."""
        return sum(each.predicted_cached_tokens == each.reported_cached_tokens for each in self.predictions)

    @property
    def exact_share(self) -> float:
        """The share of exact predictions, 0 to 1; 1 without requests."""
        return self.exact_requests / len(self.predictions) if self.predictions else 1.0

    @property
    def error(self) -> float:
        """The difference between the predicted and the reported sum of cached tokens, divided by the reported sum or,
        if that is 0, by the predicted sum.
        """
        difference = abs(self.predicted_cached_tokens - self.reported_cached_tokens)
        return difference / (self.reported_cached_tokens or self.predicted_cached_tokens or 1)


def predict(batches: Iterable[RecordedBatch], requests: Sequence[RecordedRequest], *, seeds: Sequence[str] = ()) -> Agreement:
    """Play a recording to an empty index and return the agreement. `seeds` are values of PYTHONHASHSEED to try when
    recognising the hashes.
    """
    feeds, counts = _in_order(batches)
    sizes = {source: size for source, fed in feeds.items() if (size := _block_size(fed)) is not None}
    sequences = {size: token_sequences(requests, size) for size in set(sizes.values())}
    hashing = _recognised(feeds, sizes, sequences, seeds)
    findings = {source: _unseen(feeds[source], sequences[size], size, hashing) for source, size in sizes.items()}
    unseen = {source: finding.segments for source, finding in findings.items()}
    playing = Playing(feeds, sizes, unseen, _placed(requests, sizes, sequences, findings))
    found = [
        Prediction(
            name=request.name,
            prompt_tokens=len(request.prompt_token_ids),
            predicted_cached_tokens=cached,
            reported_cached_tokens=request.cached_tokens,
        )
        for request, cached in playing.cached_tokens(requests)
    ]
    return Agreement(
        predictions=tuple(found),
        sources=len(feeds),
        hashing=hashing,
        unseen_blocks=sum(len(blocks) for segments in unseen.values() for blocks in segments),
        sequences=counts,
        index=playing.index.counts,
    )


def _in_order(batches: Iterable[RecordedBatch]) -> tuple[dict[Source, list[Feed]], SequenceCounts]:
    trackers: dict[Source, SequenceTracker[RecordedBatch]] = {}
    taken: dict[Source, list[tuple[RecordedBatch, int]]] = defaultdict(list)
    """By source, its batches, each with the number of its segment."""
    for batch in sorted(batches, key=lambda each: each.arrived):
        tracker = trackers.setdefault(batch.source, SequenceTracker(can_replay=False, first=None))
        step = tracker.live(batch.number, batch.stamp, batch)
        so_far = taken[batch.source]
        segment = so_far[-1][1] + step.reset if so_far else 0
        so_far += [(each, segment) for each in step.batches]
    total = SequenceCounts()
    for tracker in trackers.values():
        for each in fields(SequenceCounts):
            setattr(total, each.name, getattr(total, each.name) + getattr(tracker.counts, each.name))
    return {source: _feeds(of_source) for source, of_source in taken.items()}, total


def _feeds(batches: Sequence[tuple[RecordedBatch, int]]) -> list[Feed]:
    times = made_at([batch for batch, _ in batches])
    segments = [segment for _, segment in batches]
    return [
        Feed(time=time, batch=batch, segment=segment, opens_segment=segment != before)
        for time, (batch, segment), before in zip(times, batches, [None, *segments], strict=False)
    ]


def _block_size(fed: Sequence[Feed]) -> int | None:
    """Return the block size that a `BlockIndex` would determine: the size of the first block stored with tokens; None
    without such a block.
    """
    for feed in fed:
        for event in feed.batch.events:
            if event.kind is EventKind.STORED and event.token_ids:
                return event.block_size
    return None


def _recognised(
    feeds: Mapping[Source, Sequence[Feed]],
    sizes: Mapping[Source, int],
    sequences: Mapping[int, Sequence[TokenSequence]],
    seeds: Sequence[str],
) -> EngineHashing | None:
    seen: set[BlockHash] = set()
    for fed in feeds.values():
        for feed in fed:
            for event in feed.batch.events:
                if event.kind is not EventKind.CLEARED:
                    seen.update(event.block_hashes)
    for size, _ in Counter(sizes.values()).most_common():
        plain = [each.token_ids for each in sequences[size] if each.request.lora_name is None and each.request.cache_salt is None]
        hashing = recognise(plain, size, seen, seeds)
        if hashing is not None:
            return hashing
    return None


def _unseen(fed: Sequence[Feed], sequences: Sequence[TokenSequence], block_size: int, hashing: EngineHashing | None) -> UnseenBlocks:
    finding = UnseenBlocks(sequences, block_size, hashing)
    for feed in fed:
        finding.learn(feed.batch)
    for feed in fed:
        if feed.opens_segment:
            finding.begin()
        finding.read(feed.batch)
    return finding


def _placed(
    requests: Sequence[RecordedRequest],
    sizes: Mapping[Source, int],
    sequences: Mapping[int, Sequence[TokenSequence]],
    findings: Mapping[Source, UnseenBlocks],
) -> dict[int, Source]:
    """Return the source that received each request, by the request's position in the list.

    This source is the only source that can have received the request, or the only source that stored the request's
    blocks while the request ran. A request without such a source is left out.
    """
    placed: dict[int, Source] = {}
    for number, request in enumerate(requests):
        candidates = [source for source in sizes if request.instance is None or source.instance == request.instance]
        if len(candidates) > 1:
            candidates = [source for source in candidates if findings[source].stored_meanwhile(sequences[sizes[source]][number])]
        if len(candidates) == 1:
            placed[number] = candidates[0]
    return placed
