"""Finds the blocks that a cache must have held although no event of the recording reports them.

A recording may begin when the cache is already warm, and batches may be missing in its middle. Later events show
earlier contents of the cache. A block named as a parent was in the cache, and so were all blocks before it, because an
engine reuses whole prefixes. A block that is removed without having been stored since the beginning of the segment was
in the cache. Cache hits of requests are not used, because the index is checked against them.

To find the prompt of an unseen block, the block's hash must be resolved to a key. If the engine's hashing is known,
every prompt gives the hashes of its blocks. Otherwise the tokens stored after an unknown parent are searched in the
recorded requests.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from xxhash import xxh3_64_intdigest

from fairlead.kv_events.block_keys import TOKEN_BYTES, block_keys, stored_keys, token_bytes
from fairlead.kv_events.engine_hashes import EngineHashing
from fairlead.kv_events.events import BlockHash, BlockStored, EventKind
from fairlead.kv_events.recordings import RecordedBatch, RecordedRequest

_LATE_SECONDS = 0.5
"""Seconds after a request's end within which its last events may still arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenBlock:
    """A block that was held, with its key, and its hash if known."""

    key: int
    block_hash: BlockHash | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSequence:
    """The tokens of a request's prompt and answer, with the keys of their blocks."""

    request: RecordedRequest
    token_ids: Sequence[int]
    keys: tuple[int, ...]


def token_sequences(requests: Iterable[RecordedRequest], block_size: int) -> list[TokenSequence]:
    """Return the tokens that each request left in a cache. These are all tokens except the last token, whose keys and
    values were never computed.
    """
    found = []
    for request in requests:
        token_ids = (*request.prompt_token_ids, *request.output_token_ids[:-1])
        keys = block_keys(token_ids, block_size, lora_name=request.lora_name, cache_salt=request.cache_salt)
        found.append(TokenSequence(request=request, token_ids=token_ids, keys=keys))
    return found


@dataclass(slots=True, kw_only=True)
class _Segment:
    """A gapless stretch of one source's batches; the content of the cache at its beginning is unknown."""

    copies: dict[int, int] = field(default_factory=dict)
    mentioned: set[int] = field(default_factory=set)
    unseen: list[UnseenBlock] = field(default_factory=list)


class UnseenBlocks:
    """Finds the unseen blocks of one source.

    The caller passes the source's batches in order twice. First `learn` gets all batches, because a hash means the same
    block in all of them, but a late batch may show which block it is. Then `read` gets each batch; `begin` is called
    before every segment.
    """

    def __init__(self, sequences: Sequence[TokenSequence], block_size: int, hashing: EngineHashing | None) -> None:
        self._block_size = block_size
        self._names: dict[BlockHash, int] = {}
        self._hashes: dict[int, BlockHash] = {}
        self._parents: dict[int, int | None] = {}
        """Key of a block → key of the block before it in its sequence; None for a first block."""
        self._places: dict[int, list[tuple[TokenSequence, int]]] = {}
        """Hash of a block's own tokens → the positions of the blocks with these tokens in the sequences; the first
        blocks of sequences are left out.
        """
        self._stored_at: dict[int, list[float]] = {}
        self._segments: list[_Segment] = []
        for sequence in sequences:
            self._learn_sequence(sequence, hashing)

    @property
    def segments(self) -> list[list[UnseenBlock]]:
        """For each segment, the blocks held at its beginning."""
        return [segment.unseen for segment in self._segments]

    def learn(self, batch: RecordedBatch) -> None:
        """Record the keys of the blocks that the batch stores, by the blocks' hashes."""
        for event in batch.events:
            if event.kind is EventKind.STORED:
                self._name_stored(event, batch.arrived)

    def stored_meanwhile(self, sequence: TokenSequence) -> bool:
        """Return whether blocks of this sequence were stored while its request was in flight."""
        begin, end = sequence.request.sent, sequence.request.done + _LATE_SECONDS
        return any(begin <= time <= end for key in sequence.keys for time in self._stored_at.get(key, ()))

    def begin(self) -> None:
        """Begin a new segment: batches before it were not recorded, or were lost."""
        self._segments.append(_Segment())

    def read(self, batch: RecordedBatch) -> None:
        """Read the segment's next batch."""
        segment = self._segments[-1]
        for event in batch.events:
            if event.kind is EventKind.STORED:
                self._stored(segment, event)
            elif event.kind is EventKind.REMOVED:
                for block_hash in event.block_hashes:
                    self._removed(segment, block_hash)
            else:
                segment.copies.clear()
                segment.mentioned.update(self._parents)  # nothing from before the segment is left

    def _learn_sequence(self, sequence: TokenSequence, hashing: EngineHashing | None) -> None:
        request, keys = sequence.request, sequence.keys
        self._parents.update(zip(keys, (None, *keys), strict=False))
        for number, digest in enumerate(self._digests(sequence.token_ids)):
            if number:
                self._places.setdefault(digest, []).append((sequence, number))
        if hashing is not None:
            hashes = hashing.block_hashes(sequence.token_ids, self._block_size, lora_name=request.lora_name, cache_salt=request.cache_salt)
            for block_hash, key in zip(hashes, keys, strict=True):
                self._name(block_hash, key)

    def _name(self, block_hash: BlockHash, key: int) -> None:
        self._names[block_hash] = key
        self._hashes[key] = block_hash

    def _name_stored(self, event: BlockStored, arrived: float) -> None:
        if event.block_size != self._block_size or not event.token_ids:
            return
        key = None
        if event.parent_block_hash is not None:
            key = self._names.get(event.parent_block_hash)
            if key is None:
                key = self._key_by_tokens(event, arrived)
                if key is None:
                    return
                self._name(event.parent_block_hash, key)
        try:
            keys = stored_keys(event, key)
        except (ValueError, OverflowError, TypeError):
            return
        for block_hash, stored in zip(event.block_hashes, keys, strict=True):
            self._name(block_hash, stored)
            self._parents[stored] = key
            self._stored_at.setdefault(stored, []).append(arrived)
            key = stored

    def _stored(self, segment: _Segment, event: BlockStored) -> None:
        if event.parent_block_hash is not None:
            self._prove(segment, self._names.get(event.parent_block_hash))
        for block_hash in event.block_hashes:
            key = self._names.get(block_hash)
            if key is not None:
                segment.copies[key] = segment.copies.get(key, 0) + 1
                segment.mentioned.add(key)

    def _removed(self, segment: _Segment, block_hash: BlockHash) -> None:
        key = self._names.get(block_hash)
        if key is None:
            return
        if not segment.copies.get(key):
            self._was_there(segment, key)
        segment.copies[key] = max(0, segment.copies.get(key, 0) - 1)

    def _prove(self, segment: _Segment, key: int | None) -> None:
        """Record that the block with this key and all blocks before it were held at the segment's beginning."""
        while key is not None:
            if not segment.copies.get(key):
                self._was_there(segment, key)
            key = self._parents.get(key)

    def _was_there(self, segment: _Segment, key: int) -> None:
        if key not in segment.mentioned:
            segment.mentioned.add(key)
            segment.copies[key] = 1
            segment.unseen.append(UnseenBlock(key=key, block_hash=self._hashes.get(key)))

    def _key_by_tokens(self, event: BlockStored, arrived: float) -> int | None:
        """Return the key of the event's parent block. It is found if the event's tokens follow only one prefix in the
        requests that were in flight at that time. None otherwise.
        """
        digests = self._digests(event.token_ids)
        found = {
            sequence.keys[number - 1]
            for sequence, number in self._places.get(digests[0], ())
            if sequence.request.sent <= arrived <= sequence.request.done + _LATE_SECONDS
            and _follow(self._digests(sequence.token_ids)[number:], digests)
        }
        return found.pop() if len(found) == 1 else None

    def _digests(self, token_ids: Sequence[int]) -> list[int]:
        """Return a hash of each block's own tokens, in the order of the blocks."""
        size = self._block_size * TOKEN_BYTES
        data = token_bytes(token_ids)
        return [xxh3_64_intdigest(data[begin : begin + size]) for begin in range(0, len(data) - size + 1, size)]


def _follow(recorded: Sequence[int], stored: Sequence[int]) -> bool:
    """Return whether one of the two token lists is the beginning of the other. A recorded answer may end before the
    tokens that the engine stored.
    """
    return all(one == other for one, other in zip(recorded, stored, strict=False))
