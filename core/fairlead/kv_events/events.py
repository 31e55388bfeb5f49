"""The events of an engine about its prefix cache, as vLLM publishes them; attributes have the names of the wire format.

The types are protocols, so that an adapter can decode messages into its own classes and pass these on without a copy.
"""

from collections.abc import Sequence
from enum import Enum
from typing import ClassVar, Literal, Protocol

BlockHash = int | bytes
"""An engine's name for a block: a signed or unsigned number of 64 bits, or the whole digest."""


class EventKind(Enum):
    """The three kinds of events."""

    STORED = "BlockStored"
    REMOVED = "BlockRemoved"
    CLEARED = "AllBlocksCleared"


class BlockStored(Protocol):
    """Consecutive blocks of one sequence are in the cache from now on."""

    kind: ClassVar[Literal[EventKind.STORED]]

    @property
    def block_hashes(self) -> Sequence[BlockHash]:
        """The blocks' hashes, in sequence order."""

    @property
    def parent_block_hash(self) -> BlockHash | None:
        """The hash of the block before the first stored block; None at the start of a sequence."""

    @property
    def token_ids(self) -> Sequence[int]:
        """The tokens of all blocks in order; empty if the event only reports the tier of a known block."""

    @property
    def block_size(self) -> int:
        """Tokens per block."""

    @property
    def lora_id(self) -> int | None:
        """The engine's own number of the adapter; older engines send only this."""

    @property
    def lora_name(self) -> str | None:
        """The adapter's name."""

    @property
    def medium(self) -> str | None:
        """The place of the blocks: `GPU` (also if None), `CPU`, `STORAGE`, …"""

    @property
    def locality(self) -> str | None:
        """`REMOTE` if the medium is on another machine; None or `LOCAL` if it is the engine's own."""

    @property
    def extra_keys(self) -> Sequence[Sequence[object] | None] | None:
        """Per block, the values besides tokens on which its hash depends: adapter, salt, images. None if no block has
        such values.
        """

    @property
    def cache_salt(self) -> str | None:
        """The salt that all blocks of the sequence depend on, if the engine reports it separately from `extra_keys`."""

    @property
    def group_idx(self) -> int | None:
        """Group of layers; models with several kinds of attention cache a block once per group."""

    @property
    def kv_cache_spec_kind(self) -> str | None:
        """The group's kind of attention (`full_attention`, `sliding_window`, …)."""


class BlockRemoved(Protocol):
    """Blocks were evicted. If a block was stored twice, the cache has two copies, and an event removes one copy."""

    kind: ClassVar[Literal[EventKind.REMOVED]]

    @property
    def block_hashes(self) -> Sequence[BlockHash]: ...

    @property
    def medium(self) -> str | None: ...

    @property
    def locality(self) -> str | None: ...

    @property
    def group_idx(self) -> int | None: ...


class AllBlocksCleared(Protocol):
    """The whole prefix cache was emptied."""

    kind: ClassVar[Literal[EventKind.CLEARED]]


KvEvent = BlockStored | BlockRemoved | AllBlocksCleared
