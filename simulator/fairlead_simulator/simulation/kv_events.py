"""KV events of simulated engines: published in numbered batches, delayed, sometimes lost, and processed by the router's
own code (`fairlead.kv_events`), which also handles missing batches.

KV events contain token ids, and a trace has only block ids. So each block of a trace is represented by 512 tokens: two
encode the block's id and the others are 0. Therefore equal prefixes have equal keys, and different prefixes have
different keys.
"""

import sys
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Literal

from fairlead.kv_events.block_keys import block_keys
from fairlead.kv_events.engine_caches import EngineCaches
from fairlead.kv_events.events import BlockStored, EventKind, KvEvent
from fairlead.kv_events.sequences import SequenceTracker, SourceState, Step
from fairlead.kv_events.sources import Source
from fairlead_simulator.engine_model.kv_memory import PREFIX_BLOCK_TOKENS

KEPT_BATCHES = 10_000
"""Number of batches that an engine keeps for replays, as by default in vLLM."""

_PADDING = bytes(4 * (PREFIX_BLOCK_TOKENS - 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class KvEventQuality:
    """Delay and loss of KV events on their way to a router. `loss` is the share of batches that are lost, 0 to 1.
    Replayed batches are never lost.
    """

    delay_seconds: float = 0.0
    loss: float = 0.0
    replay: bool = True
    """Whether engines can replay lost batches. If they cannot, a router that misses a batch clears its index of the
    engine.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBlocks:
    """A `BlockStored` event. Its tokens are computed when they are read, because the tokens of all kept events would
    fill the memory.
    """

    kind: ClassVar[Literal[EventKind.STORED]] = EventKind.STORED

    block_hashes: Sequence[int]
    parent_block_hash: int | None
    block_size: int = PREFIX_BLOCK_TOKENS
    lora_id: int | None = None
    lora_name: str | None = None
    medium: str | None = None
    locality: None = None
    extra_keys: None = None
    cache_salt: None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None

    @property
    def token_ids(self) -> Sequence[int]:
        return tokens_of(self.block_hashes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedBlocks:
    """A `BlockRemoved` event."""

    kind: ClassVar[Literal[EventKind.REMOVED]] = EventKind.REMOVED

    block_hashes: Sequence[int]
    medium: str | None = None
    locality: None = None
    group_idx: int | None = None


def tokens_of(blocks: Sequence[int]) -> "array[int]":
    """Return the tokens that represent a trace's blocks. The tokens of a block contain all 64 bits of its id, so blocks
    with different ids have different tokens.
    """
    tokens = array("I")
    tokens.frombytes(b"".join([block.to_bytes(8, sys.byteorder) + _PADDING for block in blocks]))
    return tokens


class PromptKeys:
    """The keys of prompts' blocks in the router's index. A trace's block id stands for the block and all blocks before
    it, so each id always has the same key, which is computed only once.
    """

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def of(self, blocks: Sequence[int], prompt_tokens: int) -> tuple[int, ...]:
        """Return the keys of the prompt's blocks that can be reused. A last block that ends exactly with the prompt is
        left out, because an engine always computes the prompt's last token.
        """
        usable = blocks[: (prompt_tokens - 1) // PREFIX_BLOCK_TOKENS]
        known = self._known
        if usable and usable[-1] not in known:
            known.update(zip(usable, block_keys(tokens_of(usable), PREFIX_BLOCK_TOKENS), strict=True))
        return tuple([known[block] for block in usable])


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The changes of an engine's cache since its previous batch; `stamp` is the time in seconds of the simulation."""

    number: int
    stamp: float
    events: tuple[KvEvent, ...]


class HostWatcher:
    """A watcher of an engine's cache in host memory. It appends to `events`, the list of the engine's publisher."""

    def __init__(self, events: list[KvEvent]) -> None:
        self._events = events

    def stored(self, parent: int | None, blocks: Sequence[int]) -> None:
        event: BlockStored = StoredBlocks(block_hashes=tuple(blocks), parent_block_hash=parent, medium="CPU")
        self._events.append(event)

    def removed(self, blocks: Sequence[int]) -> None:
        self._events.append(RemovedBlocks(block_hashes=tuple(blocks), medium="CPU"))


class EventPublisher:
    """A watcher of one engine's prefix cache since the engine's start. `host` watches the engine's cache in host
    memory.
    """

    def __init__(self) -> None:
        self._events: list[KvEvent] = []
        self.host = HostWatcher(self._events)
        self._published = 0
        self.kept: deque[Batch] = deque(maxlen=KEPT_BATCHES)

    def stored(self, parent: int | None, blocks: Sequence[int]) -> None:
        event: BlockStored = StoredBlocks(block_hashes=tuple(blocks), parent_block_hash=parent)
        self._events.append(event)

    def removed(self, blocks: Sequence[int]) -> None:
        self._events.append(RemovedBlocks(block_hashes=tuple(blocks)))

    def batch(self, now: float) -> Batch | None:
        """Return the changes of the cache since the previous batch; None if nothing changed."""
        if not self._events:
            return None
        batch = Batch(number=self._published, stamp=now, events=tuple(self._events))
        self._events.clear()
        self._published += 1
        self.kept.append(batch)
        return batch


class EventFollower:
    """One router's view of one engine's KV events. `ask(number)` requests a replay that begins with the batch of this
    number.
    """

    def __init__(self, caches: EngineCaches, instance: str, quality: KvEventQuality, lost: Random, ask: Callable[[int], None]) -> None:
        self._caches = caches
        self._source = Source(instance=instance)
        self._quality = quality
        self._lost = lost
        self._ask = ask
        self._tracker: SequenceTracker[Batch] = SequenceTracker(can_replay=quality.replay)
        self._heard_out = False
        """Whether a replay has ended since the engine was first connected. If it has ended and brought no batches, the
        engine's cache is known to be empty.
        """

    @property
    def gaps(self) -> int:
        """Number of times that the router noticed that a batch was missing."""
        return self._tracker.counts.gaps

    def loses(self) -> bool:
        """Return whether the next batch is lost on its way to the router; a random number decides."""
        return self._lost.random() < self._quality.loss

    def connected(self) -> None:
        """Record that the engine is connected, for the first time or after a restart."""
        self._do(self._tracker.reconnected())

    def hear(self, batch: Batch) -> None:
        """Process a batch that the engine has just published. Batches of a replay are processed by `hear_again`."""
        self._do(self._tracker.live(batch.number, batch.stamp, batch))

    def hear_again(self, batches: Sequence[Batch]) -> None:
        """Process the batches of a replay that this follower has requested."""
        for batch in batches:
            self._do(self._tracker.replayed(batch.number, batch.stamp, batch))
        self._heard_out = True
        self._do(self._tracker.replay_ended())

    def _do(self, step: Step[Batch]) -> None:
        index = self._caches.index
        if step.reset:
            index.clear(self._source)
        for batch in step.batches:
            index.apply(self._source, batch.events)
        if step.replay_from is not None:
            self._ask(step.replay_from)
        size = index.block_size(self._source)
        if size is not None:
            self._caches.takes_size(size)
        state = self._tracker.state
        if state in (SourceState.CURRENT, SourceState.INCOMPLETE) or (state is SourceState.WAITING and self._heard_out):
            self._caches.hear(self._source.instance, self._source, complete=state is not SourceState.INCOMPLETE)
        else:
            self._caches.ignore(self._source.instance)
