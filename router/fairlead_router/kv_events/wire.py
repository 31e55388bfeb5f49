"""Decodes batches of KV events as engines send them: msgpack, in the encodings of vLLM from 0.9 on and of SGLang.

A batch is an array `[stamp, events, rank]`; the newest engines send a map. An event is a map whose `type` is the
event's name; older engines send an array that begins with the name and may omit defaults at its end. Unknown fields and
events, which later engines may add, are skipped.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec.structs import replace

from fairlead.kv_events.events import EventKind
from fairlead.plausibility import LONGEST_HASH, LONGEST_NAME, LONGEST_WORD, MOST_BLOCK_TOKENS, is_time, shown

_Hash = int | Annotated[bytes, msgspec.Meta(max_length=LONGEST_HASH)]
_BlockTokens = Annotated[int, msgspec.Meta(ge=0, le=MOST_BLOCK_TOKENS)]  # vLLM's offloading connector says 0 for blocks that it only names
_Word = Annotated[str, msgspec.Meta(max_length=LONGEST_WORD)]
_Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]


class BatchUnreadable(Exception):
    """An exception: the bytes are not a batch of KV events. The message names the fault."""


class BlockStored(msgspec.Struct, tag="BlockStored", tag_field="type", gc=False):
    """The wire form of `fairlead.kv_events.events.BlockStored`."""

    kind: ClassVar[Literal[EventKind.STORED]] = EventKind.STORED
    block_hashes: list[_Hash]
    parent_block_hash: _Hash | None
    token_ids: list[int]
    block_size: _BlockTokens
    lora_id: int | None = None
    medium: _Word | None = None
    lora_name: _Name | None = None
    extra_keys: list[list[Any] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: _Word | None = None

    @property
    def cache_salt(self) -> str | None:
        """The cache salt of the blocks; None if there is none. Only events encoded as maps have it."""
        return None

    @property
    def locality(self) -> str | None:
        """The owner of the storage medium; None if it is not given. Only events encoded as maps have it."""
        return None


class BlockRemoved(msgspec.Struct, tag="BlockRemoved", tag_field="type", gc=False):
    """The wire form of `fairlead.kv_events.events.BlockRemoved`."""

    kind: ClassVar[Literal[EventKind.REMOVED]] = EventKind.REMOVED
    block_hashes: list[_Hash]
    medium: _Word | None = None
    group_idx: int | None = None

    @property
    def locality(self) -> str | None:
        """The owner of the storage medium; None if it is not given. Only events encoded as maps have it."""
        return None


class AllBlocksCleared(msgspec.Struct, tag="AllBlocksCleared", tag_field="type", gc=False):
    """The wire form of `fairlead.kv_events.events.AllBlocksCleared`."""

    kind: ClassVar[Literal[EventKind.CLEARED]] = EventKind.CLEARED


class _StoredMap(BlockStored, tag="BlockStored", tag_field="type", gc=False):
    cache_salt: _Name | None = None
    locality: _Word | None = None


class _RemovedMap(BlockRemoved, tag="BlockRemoved", tag_field="type", gc=False):
    locality: _Word | None = None


class _StoredArray(BlockStored, tag="BlockStored", tag_field="type", array_like=True, gc=False): ...


class _RemovedArray(BlockRemoved, tag="BlockRemoved", tag_field="type", array_like=True, gc=False): ...


class _ClearedArray(AllBlocksCleared, tag="AllBlocksCleared", tag_field="type", array_like=True, gc=False): ...


WireEvent = BlockStored | BlockRemoved | AllBlocksCleared
_MapEvent = _StoredMap | _RemovedMap | AllBlocksCleared
_ArrayEvent = _StoredArray | _RemovedArray | _ClearedArray


class WireBatch(msgspec.Struct, array_like=True, gc=False):
    """A batch of events. `ts`: its time in seconds by the engine's clock. `events`: its events in order.
    `data_parallel_rank`: the rank that sent it.
    """

    ts: float
    events: Sequence[WireEvent]
    data_parallel_rank: int | None = None


class _BatchOfMaps(WireBatch, array_like=True, gc=False):
    events: Sequence[_MapEvent]


class _BatchOfArrays(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[_ArrayEvent]
    data_parallel_rank: int | None = None


class _BatchOfAnything(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[msgspec.Raw]
    data_parallel_rank: int | None = None


class _MapBatch(msgspec.Struct, gc=False):
    ts: float
    events: list[msgspec.Raw]
    data_parallel_rank: int | None = None


class _NameOnly(msgspec.Struct):
    type: str


_MAPS = msgspec.msgpack.Decoder(_BatchOfMaps)
_ARRAYS = msgspec.msgpack.Decoder(_BatchOfArrays)
_ANYTHING = msgspec.msgpack.Decoder(_BatchOfAnything)
_MAP_BATCH = msgspec.msgpack.Decoder(_MapBatch)
_MAP_EVENT: msgspec.msgpack.Decoder[WireEvent] = msgspec.msgpack.Decoder(_MapEvent)
_ARRAY_EVENT: msgspec.msgpack.Decoder[WireEvent] = msgspec.msgpack.Decoder(_ArrayEvent)
_EVENT_NAME = msgspec.msgpack.Decoder(_NameOnly)
_EVENT_ITEMS = msgspec.msgpack.Decoder(Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1)])
_TEXT = msgspec.msgpack.Decoder(str)
_KNOWN = frozenset(kind.value for kind in EventKind)


def decode(payload: bytes) -> WireBatch:
    """Return the batch in these bytes. Raises BatchUnreadable, also for impossible values."""
    try:
        batch = _decoded(payload)
    except RecursionError:
        raise BatchUnreadable("no batch of KV events: it nests too deeply") from None
    if not is_time(batch.ts):
        raise BatchUnreadable(f"no batch of KV events: its time is {batch.ts:g}")
    return batch


def in_parts(events: Sequence[WireEvent], most_blocks: int) -> list[Sequence[WireEvent]]:
    """Return the events in order, divided into parts of at most `most_blocks` blocks; at least one part. An event
    without blocks counts as one block.

    An event with more than `most_blocks` blocks is divided into several events with the same meaning. The parent of
    each of these events is the last block of the event before it.
    """
    if len(events) <= most_blocks and sum(map(_blocks, events)) <= most_blocks:
        return [events]
    parts: list[Sequence[WireEvent]] = []
    part: list[WireEvent] = []
    left = most_blocks
    for event in events:
        for piece in _pieces(event, most_blocks):
            if _blocks(piece) > left:
                parts.append(part)
                part, left = [], most_blocks
            part.append(piece)
            left -= _blocks(piece)
    return [*parts, part]


def _blocks(event: WireEvent) -> int:
    return 1 if isinstance(event, AllBlocksCleared) else max(1, len(event.block_hashes))


def _pieces(event: WireEvent, most: int) -> Iterator[WireEvent]:
    if isinstance(event, AllBlocksCleared) or len(event.block_hashes) <= most:
        yield event
    elif isinstance(event, BlockRemoved):
        yield from (replace(event, block_hashes=event.block_hashes[start : start + most]) for start in _starts(event, most))
    elif len(event.token_ids) in (0, event.block_size * len(event.block_hashes)):
        yield from (_piece(event, start, start + most) for start in _starts(event, most))
    else:
        yield event  # the index refuses it


def _starts(event: BlockStored | BlockRemoved, most: int) -> range:
    return range(0, len(event.block_hashes), most)


def _piece(event: BlockStored, start: int, end: int) -> BlockStored:
    size = event.block_size if event.token_ids else 0
    return replace(
        event,
        block_hashes=event.block_hashes[start:end],
        parent_block_hash=event.block_hashes[start - 1] if start else event.parent_block_hash,
        token_ids=event.token_ids[start * size : end * size],
        extra_keys=None if event.extra_keys is None else event.extra_keys[start:end],
    )


def _decoded(payload: bytes) -> WireBatch:
    try:
        return _MAPS.decode(payload)
    except msgspec.MsgspecError:
        pass
    try:
        batch = _ARRAYS.decode(payload)
        return WireBatch(batch.ts, list(batch.events), batch.data_parallel_rank)
    except msgspec.MsgspecError:
        return _decode_slowly(payload)


def _decode_slowly(payload: bytes) -> WireBatch:
    """Decode a batch event by event, because it mixes encodings or has event types of a newer engine."""
    try:
        batch = _MAP_BATCH.decode(payload) if _is_map(payload) else _ANYTHING.decode(payload)
        events = [event for raw in batch.events if (event := _event(raw)) is not None]
    except msgspec.MsgspecError as error:
        raise BatchUnreadable(f"no batch of KV events: {shown(str(error))}") from None
    return WireBatch(batch.ts, events, batch.data_parallel_rank)


def _event(raw: msgspec.Raw) -> WireEvent | None:
    """Return the decoded event; None if its type is unknown."""
    if _is_map(bytes(raw)):
        return _MAP_EVENT.decode(raw) if _EVENT_NAME.decode(raw).type in _KNOWN else None
    items = _EVENT_ITEMS.decode(raw)
    return _ARRAY_EVENT.decode(raw) if _TEXT.decode(items[0]) in _KNOWN else None


def _is_map(encoded: bytes) -> bool:
    """Return whether the bytes are a msgpack map. The first byte of a small map is 0x80 to 0x8f, that of a larger map
    0xde or 0xdf.
    """
    return b"\x80" <= encoded[:1] < b"\x90" or encoded[:1] in (b"\xde", b"\xdf")
