"""Which instance holds which blocks, fed by its own events.

Two keys: an event names a block by the engine's hash, a prompt asks by `block_keys`. The index keeps, for each holding,
what key each hash stands for, and for each key a mask of the holdings that have it. The scheme (engine hash → request
key) is llm-d's; what differs from it: a stored block whose parent is unknown is left out, where llm-d gives it the key
of a first block, and copies of one block are counted, because an engine stores and evicts each copy on its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fairlead.kv_events.block_keys import stored_keys
from fairlead.kv_events.events import BlockHash, BlockRemoved, BlockStored, EventKind, KvEvent
from fairlead.kv_events.sources import EXPECTED, Cache, Holders, Holding, Source, key_of
from fairlead.plausibility import MOST_GROUPS, MOST_TIERS
from fairlead.slot_masks import slots_of

MOST_BLOCKS_PER_HOLDING = 4_000_000
"""An H200's cache holds some 100,000 blocks of 16 tokens, a node's memory some millions."""

SWEPT_AT_ONCE = 1_000
"""Larger holdings are cleared little by little: to forget 100,000 blocks at once would hold requests up."""

_GPU = "GPU"
_STORED: Final = EventKind.STORED  # an enum's members are looked up slowly, and these are asked for with every event
_REMOVED: Final = EventKind.REMOVED
_PREFIX_KINDS = frozenset({"full_attention", "mla_attention", "sink_full_attention", "unknown"})
"""Kinds of attention whose cached blocks decide what of a prompt is reused. A group of another kind is left out."""


@dataclass(slots=True, kw_only=True)
class IndexCounts:
    """Blocks that the index did not accept, and blocks that it had to forget."""

    unknown_parent: int = 0
    """Stored after a block the index does not know: events were lost, or began before we listened."""
    unknown_removed: int = 0
    wrong_size: int = 0
    """Stored with another block size than the source's first event, or with token ids that do not fill the blocks."""
    unknown_tier: int = 0
    """Stored in more kinds of memory than any engine has."""
    unnamed: int = 0
    """Stored without token ids under a hash that no other tier of the source has explained."""
    forgotten: int = 0
    """Dropped because a holding or a key reached its bound."""


class BlockIndex:
    """The blocks that every source holds.

    `most_blocks` bounds each holding (a source's blocks in one tier); its oldest go first. `most_holders`, where given,
    bounds how many holdings of one key are kept (llm-d's `podCacheSize`); the one added longest ago goes first, and is
    then unknown for this key until the engine stores the block again.
    """

    def __init__(self, *, most_blocks: int = MOST_BLOCKS_PER_HOLDING, most_holders: int | None = None) -> None:
        if most_blocks < 1 or (most_holders is not None and most_holders < 1):
            raise ValueError("most_blocks and most_holders must be at least 1")
        self._most_blocks = most_blocks
        self._most_holders = most_holders
        self._caches: dict[Source, Cache] = {}
        self._holders = Holders()
        self._masks = self._holders.masks
        self._added: dict[int, list[Holding]] = {}
        """Request key → holdings in order of adding; only kept where `most_holders` asks for it."""
        self._cleared: list[Holding] = []
        """Cleared blocks that are not swept yet; no source has their bits, so no prompt finds them."""
        self.slots_version = 0
        """Grows when a source takes or leaves a slot."""
        self._slots: dict[Source, int] = {}
        self._alone = 0
        """The bits of sources with one holding."""
        self._together: tuple[int, ...] = ()
        """The masks of the others."""
        self._slots_of_version = 0
        self.counts = IndexCounts()

    def __len__(self) -> int:
        """The number of distinct blocks that some source holds or is expected to hold, including cleared ones not swept
        yet.
        """
        return len(self._masks)

    @property
    def sources(self) -> Iterable[Source]:
        """Every source that has sent an event."""
        return self._caches.keys()

    def block_size(self, source: Source) -> int | None:
        """Tokens per block, from the source's first stored block; None before it."""
        cache = self._caches.get(source)
        return None if cache is None else cache.block_size

    def blocks(self, source: Source) -> Mapping[str, int]:
        """Blocks held per tier, expected ones left out."""
        cache = self._caches.get(source)
        return {} if cache is None else {tier: len(held.keys) for tier, held in cache.holdings.items() if tier != EXPECTED}

    def apply(self, source: Source, events: Iterable[KvEvent]) -> bool:
        """Apply a batch of events in order; returns whether one of them cleared the source.

        Events that cannot be used are counted in `counts`.
        """
        if self._cleared:
            self.sweep(SWEPT_AT_ONCE)
        cache = self._cache(source)
        cleared = False
        for event in events:
            if event.kind is _STORED:
                self._store(cache, event)
            elif event.kind is _REMOVED:
                self._remove(cache, event)
            else:
                self.clear(source)
                cleared = True
        return cleared

    def match(self, source: Source, keys: Sequence[int], *, expected: bool = True) -> int:
        """How many leading blocks of a prompt the source holds, in any tier, or is expected to."""
        cache = self._caches.get(source)
        if cache is None:
            return 0
        left_out = None if expected else cache.holdings.get(EXPECTED)
        return self._holders.leading(keys, cache.mask if left_out is None else cache.mask & ~left_out.bit)

    def match_everywhere(self, keys: Sequence[int]) -> dict[Source, int]:
        """Leading blocks held, for each source that holds at least the first."""
        sources = {slot: source for source, slot in self.slots().items()}
        return {sources[slot]: depth for mask, depth in self.match_slots(keys) for slot in slots_of(mask)}

    def match_slots(self, keys: Sequence[int]) -> list[tuple[int, int]]:
        """(mask of slots, leading blocks held), shallowest first, of all sources that hold at least the first block;
        each slot is in one mask.
        """
        self.slots()
        return self._holders.depths(keys, self._alone, self._together)

    def slots(self) -> Mapping[Source, int]:
        """Source → its slot, for sources that hold or held something. Valid while `slots_version` is the same."""
        if self._slots_of_version != self.slots_version:
            masks = {source: cache.mask for source, cache in self._caches.items() if cache.mask}
            self._slots = {source: (mask & -mask).bit_length() - 1 for source, mask in masks.items()}
            self._together = tuple(mask for mask in masks.values() if mask.bit_count() > 1)
            self._alone = sum(mask for mask in masks.values() if mask.bit_count() == 1)
            self._slots_of_version = self.slots_version
        return self._slots

    def hold(self, source: Source, block_hash: BlockHash, key: int, *, tier: str = _GPU) -> None:
        """Record that the source holds this block, although none of its events said so."""
        self._add(self._holding(self._cache(source), tier), block_hash, key)

    def expect(self, source: Source, keys: Sequence[int], request: str) -> None:
        """Expect the source to hold these blocks before its events say so, because a request with a new id was sent
        there.

        When an event stores such a block, it is no longer expected but held for as long as events say.
        """
        cache = self._cache(source)
        holding = self._holding(cache, EXPECTED)
        for key in keys:
            requests = cache.expecting.get(key)
            if requests is None:
                cache.expecting[key] = {request}
                self._add(holding, key, key)
            else:
                requests.add(request)

    def no_longer_expect(self, source: Source, keys: Sequence[int], request: str) -> None:
        """Stop expecting the blocks that are still expected because of this request; unknown requests are ignored."""
        cache = self._caches.get(source)
        if cache is None:
            return
        for key in keys:
            requests = cache.expecting.get(key)
            if requests is not None and request in requests:
                requests.discard(request)
                if not requests:
                    self._confirm(cache, key)

    def clear(self, source: Source) -> None:
        """Record that the source holds nothing now. Its block size may change; its expected blocks are kept."""
        cache = self._caches.get(source)
        if cache is not None:
            cache.block_size = None
            for tier, holding in tuple(cache.holdings.items()):
                if tier != EXPECTED:
                    self._clear(cache, holding)

    def sweep(self, most_blocks: int) -> bool:
        """Forget up to this many of the cleared blocks; return whether some are left. Every applied batch does a
        part.
        """
        while self._cleared and most_blocks > 0:
            holding = self._cleared[-1]
            keys = holding.keys
            for _ in range(min(most_blocks, len(keys))):
                self._release(keys.popitem()[1], holding)
                most_blocks -= 1
            if not keys:
                self._holders.free_bits(holding.bit)
                self._cleared.pop()
        return bool(self._cleared)

    def drop(self, source: Source) -> None:
        """Forget the source: its instance is gone."""
        cache = self._caches.pop(source, None)
        if cache is not None:
            for holding in tuple(cache.holdings.values()):
                self._clear(cache, holding)
            self._holders.free_bits(cache.mask)
            self.slots_version += 1

    def _cache(self, source: Source) -> Cache:
        cache = self._caches.get(source)
        if cache is None:
            cache = self._caches[source] = Cache()
        return cache

    def _holding(self, cache: Cache, tier: str) -> Holding:
        holding = cache.holdings.get(tier)
        if holding is None:
            bit = self._holders.take_bit()
            cache.mask |= bit
            self.slots_version += 1
            holding = cache.holdings[tier] = Holding(bit, tier)
        return holding

    def _store(self, cache: Cache, event: BlockStored) -> None:
        attention = event.kv_cache_spec_kind
        if attention is not None and attention not in _PREFIX_KINDS:
            if len(cache.groups_left_out) < MOST_GROUPS:
                cache.groups_left_out.add(event.group_idx)
            return
        tier = event.medium or _GPU
        hashes = event.block_hashes
        holding = cache.holdings.get(tier)
        if holding is None:
            if len(cache.holdings) >= MOST_TIERS:
                self.counts.unknown_tier += len(hashes)
                return
            holding = self._holding(cache, tier)
        if not event.token_ids:
            self._store_named(cache, holding, hashes)
            return
        if cache.block_size is None:
            cache.block_size = event.block_size
        parent = event.parent_block_hash
        parent_key = None
        if parent is not None:
            parent_key = holding.keys.get(parent)
            if parent_key is None and (parent_key := key_of(cache, parent)) is None:
                self.counts.unknown_parent += len(hashes)
                return
        if event.block_size != cache.block_size:
            self.counts.wrong_size += len(hashes)
            return
        try:
            keys = stored_keys(event, parent_key)
        except (ValueError, OverflowError, TypeError):
            self.counts.wrong_size += len(hashes)
            return
        held, masks, bit = holding.keys, self._masks, holding.bit
        plain = self._most_holders is None
        for block_hash, key in zip(hashes, keys, strict=True):
            if plain and block_hash not in held:
                held[block_hash] = key
                masks[key] = masks.get(key, 0) | bit
            else:
                self._add(holding, block_hash, key)
        if cache.expecting:
            for key in cache.expecting.keys() & keys:
                self._confirm(cache, key)
        if len(held) > self._most_blocks:
            self._shrink(holding)

    def _confirm(self, cache: Cache, key: int) -> None:
        """The block is no longer expected: it was stored, or will not be."""
        del cache.expecting[key]
        self._take(cache.holdings[EXPECTED], key)

    def _store_named(self, cache: Cache, holding: Holding, hashes: Sequence[BlockHash]) -> None:
        """An offloading engine tells the second tier by hash alone."""
        for block_hash in hashes:
            key = key_of(cache, block_hash)
            if key is None:
                self.counts.unnamed += 1
            else:
                self._add(holding, block_hash, key)

    def _remove(self, cache: Cache, event: BlockRemoved) -> None:
        if cache.groups_left_out and event.group_idx in cache.groups_left_out:
            return
        holding = cache.holdings.get(event.medium or _GPU)
        if holding is None:
            self.counts.unknown_removed += len(event.block_hashes)
            return
        keys, copies = holding.keys, holding.copies
        plain = self._most_holders is None
        masks, bit = self._masks, holding.bit
        for block_hash in event.block_hashes:
            if not plain or block_hash in copies:
                if not self._take(holding, block_hash):
                    self.counts.unknown_removed += 1
                continue
            key = keys.pop(block_hash, None)
            if key is None:
                self.counts.unknown_removed += 1
            elif (mask := masks.pop(key, bit)) != bit and (rest := mask & ~bit):
                masks[key] = rest

    def _add(self, holding: Holding, block_hash: BlockHash, key: int) -> None:
        held = holding.keys
        if block_hash in held:
            holding.copies[block_hash] = holding.copies.get(block_hash, 1) + 1
            return
        held[block_hash] = key
        self._masks[key] = self._masks.get(key, 0) | holding.bit
        if self._most_holders is not None:
            self._note_added(key, holding)
        if len(held) > self._most_blocks:
            self._shrink(holding)

    def _take(self, holding: Holding, block_hash: BlockHash) -> bool:
        """Remove one copy; False if there is none."""
        copies = holding.copies
        if copies and block_hash in copies:
            left = copies[block_hash] - 1
            if left > 1:
                copies[block_hash] = left
            else:
                del copies[block_hash]
            return True
        key = holding.keys.pop(block_hash, None)
        if key is None:
            return False
        self._release(key, holding)
        return True

    def _release(self, key: int, holding: Holding) -> None:
        self._holders.release(key, holding.bit)
        if self._most_holders is not None and (added := self._added.get(key)) is not None and holding in added:
            added.remove(holding)
            if not added:
                del self._added[key]

    def _note_added(self, key: int, holding: Holding) -> None:
        added = self._added.setdefault(key, [])
        if holding not in added:
            added.append(holding)
        if self._most_holders is not None and len(added) > self._most_holders:
            self._release(key, added[0])
            self.counts.forgotten += 1

    def _shrink(self, holding: Holding) -> None:
        while len(holding.keys) > self._most_blocks:
            oldest = next(iter(holding.keys))
            holding.copies.pop(oldest, None)
            self._release(holding.keys.pop(oldest), holding)
            self.counts.forgotten += 1

    def _clear(self, cache: Cache, holding: Holding) -> None:
        if len(holding.keys) > SWEPT_AT_ONCE:
            del cache.holdings[holding.tier]
            cache.mask &= ~holding.bit
            self.slots_version += 1
            self._cleared.append(holding)
            return
        for key in holding.keys.values():
            self._release(key, holding)
        holding.keys.clear()
        holding.copies.clear()
