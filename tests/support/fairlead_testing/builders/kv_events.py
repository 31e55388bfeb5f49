"""KV events, as an engine's adapter would pass them to the core."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from fairlead.kv_events.events import BlockHash, EventKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A `BlockStored` event with 4 tokens per block by default."""

    kind: ClassVar[Literal[EventKind.STORED]] = EventKind.STORED
    block_hashes: Sequence[BlockHash]
    token_ids: Sequence[int]
    parent_block_hash: BlockHash | None = None
    block_size: int = 4
    lora_id: int | None = None
    lora_name: str | None = None
    medium: str | None = None
    locality: str | None = None
    extra_keys: Sequence[Sequence[object] | None] | None = None
    cache_salt: str | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A `BlockRemoved` event."""

    kind: ClassVar[Literal[EventKind.REMOVED]] = EventKind.REMOVED
    block_hashes: Sequence[BlockHash]
    medium: str | None = None
    locality: str | None = None
    group_idx: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """An `AllBlocksCleared` event."""

    kind: ClassVar[Literal[EventKind.CLEARED]] = EventKind.CLEARED
