"""An index of the blocks that each instance holds, updated by the instance's own events.

An event names a block by the engine's hash, but a prompt is looked up by `block_keys`. So the index keeps, for each
holding (the blocks of one source in one tier), the key that belongs to each hash, and for each key a bit mask of the
holdings that have it. The scheme (engine hash → request key) is llm-d's, with two differences: a stored block whose
parent is unknown is left out, while llm-d gives it the key of a first block; and copies of one block are counted,
because an engine stores and evicts each copy separately.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fairlead.kv_events.block_keys import stored_keys
from fairlead.kv_events.events import BlockHash, BlockRemoved, BlockStored, EventKind, KvEvent
from fairlead.kv_events.sources import (
    EXPECTED,
    NOTHING_SLOW,
    SLOW,
    Cache,
    Holders,
    Holding,
    Source,
    Tier,
    TierCounts,
    TieredSource,
    key_of,
    tier_of,
)
from fairlead.plausibility import MOST_GROUPS
from fairlead.slot_masks import slots_of

MOST_BLOCKS_PER_HOLDING = 4_000_000
"""Maximum number of blocks that one source holds in one tier. An H200's cache holds some 100,000 blocks of 16 tokens, a
node's memory some millions.
"""

SWEPT_AT_ONCE = 1_000
"""Maximum number of blocks cleared in one step. Clearing 100,000 blocks at once would delay requests."""

_GPU: Final = Tier.GPU
_STORED: Final = EventKind.STORED  # an enum's members are looked up slowly, and these are asked for with every event
_REMOVED: Final = EventKind.REMOVED
_PREFIX_KINDS = frozenset({"full_attention", "mla_attention", "sink_full_attention", "unknown"})
"""Kinds of attention whose cached blocks determine the length of the reused prefix. Groups of other kinds are left out.
"""


@dataclass(slots=True, kw_only=True)
class IndexCounts:
    """Counts of blocks that the index did not accept or had to forget."""

    unknown_parent: int = 0
    """Number of blocks whose parent the index does not know: earlier events were lost, or were sent before the router
    subscribed.
    """
    unknown_removed: int = 0
    wrong_size: int = 0
    """Number of blocks stored with another block size than the source's first event, or with token ids that do not fill
    the blocks.
    """
    unnamed: int = 0
    """Number of blocks stored under a hash without token ids, if no other tier of the source has stored this hash with
    token ids. So their keys are unknown.
    """
    unknown_medium: int = 0
    """Number of blocks stored in a medium that no known engine has."""
    forgotten: int = 0
    """Number of blocks forgotten because a source held too many blocks in one tier, or too many sources held one block.
    """


class BlockIndex:
    """An index of the blocks that every source holds.

    `most_blocks` bounds the blocks of a holding, which is one source in one `Tier` (a source has at most four
    holdings). If there are more blocks, the oldest blocks are dropped. `most_holders`, if given, bounds the number of
    holdings that are kept for one key (llm-d's `podCacheSize`). If there are more holdings, the holding that was added
    longest ago is dropped; it is then unknown for this key until the engine stores the block again.
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
        """Request key → holdings in order of adding; kept only if `most_holders` is given."""
        self._cleared: list[Holding] = []
        """Cleared holdings whose blocks are not deleted yet. No source has the bits of these holdings any more, so no
        prompt finds their blocks.
        """
        self.slots_version = 0
        """A counter that increases whenever a source gets or releases a slot."""
        self._slots: dict[Source, int] = {}
        self._alone = 0
        """A mask of the bits of all sources that hold blocks in one tier only."""
        self._together: tuple[int, ...] = ()
        """A bit mask for each source that has several holdings, all of them in the GPU."""
        self._tiered: tuple[TieredSource, ...] = ()
        """An entry for each source that may hold blocks outside the GPU."""
        self._shared: Holding | None = None
        """The blocks in a store that all engines read; None without such a store. The store's bit belongs to no source.
        """
        self._shared_medium: str | None = None
        self._most_shared = 0
        self._slots_of_version = 0
        self.is_tiered = False
        """Whether sources may hold blocks outside their GPUs, or in a store that all engines read."""
        self.counts = IndexCounts()

    def __len__(self) -> int:
        """Return the number of distinct blocks that any source holds or is expected to hold. It includes cleared blocks
        that are not swept yet.
        """
        return len(self._masks)

    @property
    def sources(self) -> Iterable[Source]:
        """Every source that has sent an event."""
        return self._caches.keys()

    def block_size(self, source: Source) -> int | None:
        """Return the tokens per block, by the source's first stored block; None before that block."""
        cache = self._caches.get(source)
        return None if cache is None else cache.block_size

    @property
    def shared_blocks(self) -> int:
        """Number of blocks that the shared store is known to hold; 0 until an event has named one of its blocks."""
        return 0 if self._shared is None else len(self._shared.keys)

    def share(self, most_blocks: int, medium: str | None = None) -> None:
        """Record that all engines read one store of `most_blocks` blocks; 0 = there is no such store. Events of the
        store's blocks have this `medium` or, if `medium` is None, the locality `REMOTE`.

        The store's blocks belong to no source: they stay when an instance leaves or is cleared. A store may not report
        its evictions, so the index forgets the oldest blocks when it has more than `most_blocks`.
        """
        if most_blocks and self._shared is None:
            self._shared = Holding(self._holders.take_bit(), Tier.REMOTE)
            self.is_tiered = True
        elif not most_blocks and self._shared is not None:
            self._cleared.append(self._shared)
            self._shared = None
        self._shared_medium, self._most_shared = medium, most_blocks
        if self._shared is not None:
            self._shrink(self._shared, most_blocks)

    def match_shared(self, keys: Sequence[int]) -> int:
        """Return the number of leading blocks of a prompt that the shared store holds."""
        return 0 if self._shared is None else self._holders.leading(keys, self._shared.bit)

    def blocks(self, source: Source) -> Mapping[str, int]:
        """Return the number of blocks held per tier, without expected blocks."""
        cache = self._caches.get(source)
        return {} if cache is None else {tier: len(held.keys) for tier, held in cache.holdings.items() if tier != EXPECTED}

    def apply(self, source: Source, events: Iterable[KvEvent]) -> bool:
        """Apply a batch of events in order; return whether an event in it cleared the source.

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
        """Return the number of leading blocks of a prompt that the source holds in any tier. With `expected`, blocks
        that the source is only expected to hold count too.
        """
        cache = self._caches.get(source)
        if cache is None:
            return 0
        if cache.is_tiered:
            return self._through_tiers(cache, keys, expected=expected)[0]
        left_out = None if expected else cache.holdings.get(EXPECTED)
        return self._holders.leading(keys, cache.mask if left_out is None else cache.mask & ~left_out.bit)

    def slow_blocks(self, source: Source, keys: Sequence[int]) -> TierCounts:
        """Return, for each tier of `SLOW`, the number of blocks that would be loaded from that tier, out of the leading
        blocks that the source holds.
        """
        cache = self._caches.get(source)
        return NOTHING_SLOW if cache is None or not cache.is_tiered else self._through_tiers(cache, keys)[1]

    def slow_slots(self, keys: Sequence[int]) -> list[tuple[int, TierCounts]]:
        """Return (slot, blocks in each tier of `SLOW`) for every source that would load some of the leading blocks that
        it holds.
        """
        self.slots()
        found = self._holders.through_tiers(keys, self._tiered) if self._tiered else []
        return [(bit.bit_length() - 1, counts) for bit, _, counts in found if any(counts)]

    def _through_tiers(self, cache: Cache, keys: Sequence[int], *, expected: bool = True) -> tuple[int, TierCounts]:
        source = TieredSource(cache)
        if not expected and (left_out := cache.holdings.get(EXPECTED)) is not None:
            source.fast &= ~left_out.bit
        found = self._holders.through_tiers(keys, (source,))
        return found[0][1:] if found else (0, NOTHING_SLOW)

    def match_everywhere(self, keys: Sequence[int]) -> dict[Source, int]:
        """Return the number of leading blocks held, for each source that holds at least the first block."""
        sources = {slot: source for source, slot in self.slots().items()}
        return {sources[slot]: depth for mask, depth in self.match_slots(keys) for slot in slots_of(mask)}

    def match_slots(self, keys: Sequence[int]) -> list[tuple[int, int]]:
        """Return (mask of slots, leading blocks held) of all sources that hold at least the first block; each slot is
        in one mask.
        """
        self.slots()
        found = self._holders.depths(keys, self._alone, self._together)
        if self._tiered:
            found += [(bit, depth) for bit, depth, _ in self._holders.through_tiers(keys, self._tiered)]
        return found

    def slots(self) -> Mapping[Source, int]:
        """Return each source's slot, for sources that hold or held blocks. The result is valid while `slots_version` is
        the same.
        """
        if self._slots_of_version != self.slots_version:
            holding = [(source, cache) for source, cache in self._caches.items() if cache.mask]
            self._slots = {source: (cache.mask & -cache.mask).bit_length() - 1 for source, cache in holding}
            self._tiered = tuple(TieredSource(cache) for _, cache in holding if cache.is_tiered)
            masks = [cache.mask for _, cache in holding if not cache.is_tiered]
            self._together = tuple(mask for mask in masks if mask.bit_count() > 1)
            self._alone = sum(mask for mask in masks if mask.bit_count() == 1)
            self._slots_of_version = self.slots_version
        return self._slots

    def hold(self, source: Source, block_hash: BlockHash, key: int, *, tier: Tier = _GPU) -> None:
        """Record that the source holds this block although no event says so."""
        self._add(self._holding(self._cache(source), tier), block_hash, key)

    def expect(self, source: Source, keys: Sequence[int], request: str) -> None:
        """Expect the source to hold these blocks before its events report them, because a request was sent to it.
        `request` is a new id of that request.

        When an event stores an expected block, the block counts as held instead, until an event removes it.
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
        """Stop expecting the blocks that are expected because of this request and are not stored yet. An unknown
        request is ignored.
        """
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
        """Forget up to `most_blocks` of the blocks that were cleared; return whether such blocks are left. Each batch
        that is applied also forgets some of them.
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
        """Forget the source, because its instance no longer exists."""
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
            if tier in SLOW:
                cache.is_tiered = self.is_tiered = True
        return holding

    def _is_shared(self, medium: str, locality: str | None) -> bool:
        """Return whether an event with this medium and locality is about the shared store."""
        if self._shared is None:
            return False
        return medium == self._shared_medium if self._shared_medium is not None else locality == "REMOTE"

    def _slow_holding(self, cache: Cache, medium: str, event: BlockStored | BlockRemoved) -> Holding | None:
        """Return the holding outside the GPU that an event concerns; None if the index keeps no holding for the event's
        medium.
        """
        if self._is_shared(medium, event.locality):
            return self._shared
        tier = tier_of(medium, event.locality)
        if tier is None:
            return None
        return cache.holdings.get(tier) or (self._holding(cache, tier) if event.kind is _STORED else None)

    def _store(self, cache: Cache, event: BlockStored) -> None:
        attention = event.kv_cache_spec_kind
        if attention is not None and attention not in _PREFIX_KINDS:
            if len(cache.groups_left_out) < MOST_GROUPS:
                cache.groups_left_out.add(event.group_idx)
            return
        hashes, medium = event.block_hashes, event.medium
        is_gpu = medium is None or medium == _GPU
        holding = cache.holdings.get(_GPU) or self._holding(cache, _GPU) if is_gpu else self._slow_holding(cache, medium or "", event)
        if holding is None:
            self.counts.unknown_medium += len(hashes)
            return
        if not event.token_ids:
            self._store_named(cache, holding, hashes)
            return
        if cache.block_size is None and event.block_size > 0:
            cache.block_size = event.block_size
        parent = event.parent_block_hash
        parent_key = None
        if parent is not None:
            parent_key = holding.keys.get(parent)
            if parent_key is None and (parent_key := self._key_of(cache, parent)) is None:
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
        if holding is self._shared:
            self._store_shared(holding, hashes, keys)
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
            self._shrink(holding, self._most_blocks)

    def _confirm(self, cache: Cache, key: int) -> None:
        """Mark the block as no longer expected: it was stored, or will not be stored."""
        del cache.expecting[key]
        self._take(cache.holdings[EXPECTED], key)

    def _store_named(self, cache: Cache, holding: Holding, hashes: Sequence[BlockHash]) -> None:
        """Record blocks that the event names by their hashes alone, without token ids. Offloading engines report the
        second tier in this way.
        """
        for block_hash in hashes:
            key = self._key_of(cache, block_hash)
            if key is None:
                self.counts.unnamed += 1
            elif holding is self._shared:
                self._store_shared(holding, (block_hash,), (key,))
            else:
                self._add(holding, block_hash, key)

    def _key_of(self, cache: Cache, block_hash: BlockHash) -> int | None:
        key = key_of(cache, block_hash)
        return self._shared.keys.get(block_hash) if key is None and self._shared is not None else key

    def _store_shared(self, shared: Holding, hashes: Sequence[BlockHash], keys: Sequence[int]) -> None:
        """Record blocks in the shared store as its most recently stored blocks. A store keeps one copy of a block,
        whichever engine stores it.
        """
        held, masks, bit = shared.keys, self._masks, shared.bit
        for block_hash, key in zip(hashes, keys, strict=True):
            held.pop(block_hash, None)
            held[block_hash] = key
            masks[key] = masks.get(key, 0) | bit
        self._shrink(shared, self._most_shared)

    def _remove(self, cache: Cache, event: BlockRemoved) -> None:
        if cache.groups_left_out and event.group_idx in cache.groups_left_out:
            return
        medium = event.medium
        holding = cache.holdings.get(_GPU) if medium is None or medium == _GPU else self._slow_holding(cache, medium, event)
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
            self._shrink(holding, self._most_blocks)

    def _take(self, holding: Holding, block_hash: BlockHash) -> bool:
        """Remove one copy of the block; return False if there is no copy."""
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

    def _shrink(self, holding: Holding, most_blocks: int) -> None:
        while len(holding.keys) > most_blocks:
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
