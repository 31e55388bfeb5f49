"""KV events of simulated engines: published in numbered batches, delayed and sometimes lost, and processed as by a
router.

The index is the routers' own (`fairlead.kv_events`), and so is the handling of a missing batch. Each block of a trace
has 512 tokens in these events, of which two encode the block's id and the others are 0. So equal prefixes, and only
equal prefixes, have equal keys.
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
"""Number of batches that an engine keeps for replays; it is vLLM's default."""

_PADDING = bytes(4 * (PREFIX_BLOCK_TOKENS - 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class KvEventQuality:
    """Delay and loss of KV events on their way to a router. `loss` is the share of batches that are lost; replayed
    batches are never lost.
    """

    delay_seconds: float = 0.0
    loss: float = 0.0
    replay: bool = True
    """Whether engines can replay lost batches; if not, a missing batch makes the router clear its index of that
    engine.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBlocks:
    """A `BlockStored` event. Its tokens are computed when they are read, because stored tokens of all kept events would
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
    """Return the tokens that represent a trace's blocks. Blocks with different ids have different tokens, because the
    tokens contain all 64 bits of the id.
    """
    tokens = array("I")
    tokens.frombytes(b"".join([block.to_bytes(8, sys.byteorder) + _PADDING for block in blocks]))
    return tokens


class PromptKeys:
    """The keys of prompts' blocks. A trace's block id also identifies all blocks before it, so the key for each id is
    computed only once.
    """

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def of(self, blocks: Sequence[int], prompt_tokens: int) -> tuple[int, ...]:
        """Return the keys of the prompt's blocks that can be reused: all of them, without a last block that ends
        exactly with the prompt.
        """
        usable = blocks[: (prompt_tokens - 1) // PREFIX_BLOCK_TOKENS]
        known = self._known
        if usable and usable[-1] not in known:
            known.update(zip(usable, block_keys(tokens_of(usable), PREFIX_BLOCK_TOKENS), strict=True))
        return tuple([known[block] for block in usable])


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The changes of an engine's cache after its previous batch; `stamp` is the time in the simulation."""

    number: int
    stamp: float
    events: tuple[KvEvent, ...]


class HostWatcher:
    """A watcher of an engine's host memory, which adds to the events of the engine's publisher."""

    def __init__(self, events: list[KvEvent]) -> None:
        self._events = events

    def stored(self, parent: int | None, blocks: Sequence[int]) -> None:
        event: BlockStored = StoredBlocks(block_hashes=tuple(blocks), parent_block_hash=parent, medium="CPU")
        self._events.append(event)

    def removed(self, blocks: Sequence[int]) -> None:
        self._events.append(RemovedBlocks(block_hashes=tuple(blocks), medium="CPU"))


class EventPublisher:
    """A watcher of one engine's prefix cache, from the engine's start on; `host` watches the engine's host memory."""

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
        """Return the changes of the cache after the last batch; None if nothing changed."""
        if not self._events:
            return None
        batch = Batch(number=self._published, stamp=now, events=tuple(self._events))
        self._events.clear()
        self._published += 1
        self.kept.append(batch)
        return batch


class EventFollower:
    """The KV events of one engine as one router receives them. `ask` requests a replay, beginning with a given batch
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
        """Whether a replay has ended after the engine was connected. If there were no events by then, the engine's
        cache is empty.
        """

    @property
    def gaps(self) -> int:
        """Number of times that a missing batch was noticed."""
        return self._tracker.counts.gaps

    def loses(self) -> bool:
        """Decide at random whether the next batch is lost on its way to the router."""
        return self._lost.random() < self._quality.loss

    def connected(self) -> None:
        """Record that the engine is connected, for the first time or again."""
        self._do(self._tracker.reconnected())

    def hear(self, batch: Batch) -> None:
        """Process a batch that the engine published."""
        self._do(self._tracker.live(batch.number, batch.stamp, batch))

    def hear_again(self, batches: Sequence[Batch]) -> None:
        """Process the reply to the replay that was requested last."""
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
