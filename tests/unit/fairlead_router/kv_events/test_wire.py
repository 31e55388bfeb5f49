"""Engines' bytes: both encodings, old and new, and bytes that are no batch."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kv_events.block_index import BlockIndex
from fairlead.kv_events.events import EventKind
from fairlead.kv_events.sources import Source
from fairlead_router.kv_events.wire import (
    AllBlocksCleared,
    BatchUnreadable,
    BlockRemoved,
    BlockStored,
    WireBatch,
    WireEvent,
    decode,
    in_parts,
)
from fairlead_testing.examples import examples

REAL_REMOVAL = bytes.fromhex(
    "93cb41dac07e15f4cdb69184a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391cf81bd2e6b3b1e4c5a"
    "a66d656469756da3475055a967726f75705f69647800" + "00"
)
"""Framed as vLLM 0.32 does: an array of stamp, maps and rank; the hash an unsigned 64-bit number."""


def test_a_batch_of_maps_as_vllm_sends_it() -> None:
    batch = decode(REAL_REMOVAL)
    assert batch.data_parallel_rank == 0
    [removed] = batch.events
    assert isinstance(removed, BlockRemoved)
    assert (removed.block_hashes, removed.medium, removed.group_idx, removed.locality) == ([0x81BD2E6B3B1E4C5A], "GPU", 0, None)


def test_a_batch_of_arrays_with_digests_as_older_engines_send_it() -> None:
    payload = bytes.fromhex("93cb3ff80000000000009197ab") + b"BlockStored" + bytes.fromhex("91c420") + bytes(range(32))
    payload += bytes.fromhex("c092010202c0a3") + b"GPU" + bytes.fromhex("00")
    batch = decode(payload)
    [event] = batch.events
    assert isinstance(event, BlockStored)
    assert (batch.ts, batch.data_parallel_rank) == (1.5, 0)
    assert (event.block_hashes, event.parent_block_hash, event.token_ids) == ([bytes(range(32))], None, [1, 2])
    assert (event.block_size, event.lora_id, event.medium, event.extra_keys) == (2, None, "GPU", None)


@pytest.mark.parametrize("fields", [5, 6, 7, 13])
def test_an_array_may_leave_out_defaults_and_have_fields_of_later_versions(fields: int) -> None:
    whole = ["BlockStored", [-5], 7, [1, 2], 2, None, "CPU", "sql", [["sql"]], 0, "full_attention", None, "LOCAL"]
    [event] = decode(msgspec.msgpack.encode([1.0, [whole[:fields]]])).events
    assert isinstance(event, BlockStored)
    assert (event.block_hashes, event.parent_block_hash) == ([-5], 7)
    assert event.medium == ("CPU" if fields > 6 else None)


def test_a_batch_may_be_a_map_too() -> None:
    document = {"ts": 2.0, "events": [{"type": "AllBlocksCleared"}], "data_parallel_rank": 3}
    batch = decode(msgspec.msgpack.encode(document))
    assert (batch.ts, batch.data_parallel_rank, [event.kind for event in batch.events]) == (2.0, 3, [EventKind.CLEARED])


def test_events_and_fields_that_are_unknown_are_passed_over() -> None:
    events = [
        {"type": "BlockMigrated", "block_hashes": [1]},
        {"type": "BlockRemoved", "block_hashes": [1], "medium": None, "ownership": "disk"},
        ["BlockMoved", [1]],
        ["AllBlocksCleared"],
    ]
    assert [event.kind for event in decode(msgspec.msgpack.encode([1.0, events])).events] == [EventKind.REMOVED, EventKind.CLEARED]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"not msgpack",
        msgspec.msgpack.encode(3),
        msgspec.msgpack.encode([1.0]),
        msgspec.msgpack.encode([1.0, [3]]),
        msgspec.msgpack.encode([1.0, [[]]]),
        msgspec.msgpack.encode([1.0, [["BlockStored", "no list"]]]),
        msgspec.msgpack.encode([1.0, [{"type": "BlockRemoved"}]]),
        msgspec.msgpack.encode({"ts": 1.0}),
    ],
)
def test_what_is_no_batch_is_told_as_such(payload: bytes) -> None:
    with pytest.raises(BatchUnreadable, match="no batch of KV events: "):
        decode(payload)


def test_an_encoded_batch_is_read_back() -> None:
    stored = BlockStored([1, b"\x01"], None, [1, 2, 3, 4], 2, medium="GPU", lora_name="sql")
    batch = WireBatch(4.0, [stored, BlockRemoved([2])], 1)
    read = decode(msgspec.msgpack.encode(batch))
    back, removed = read.events
    assert isinstance(removed, BlockRemoved)
    assert (read.ts, removed.block_hashes, read.data_parallel_rank) == (4.0, [2], 1)
    assert {name: getattr(back, name) for name in BlockStored.__struct_fields__} == msgspec.structs.asdict(stored)


def test_the_locality_of_an_offloading_tier_is_read_from_maps() -> None:
    """vLLM 0.32's events of a secondary tier, which has `"locality": "REMOTE"` in its configuration."""
    named = {"block_hashes": [7], "medium": "STORAGE", "group_idx": 0, "locality": "REMOTE", "ownership": "fs"}
    placeholder: dict[str, object] = {
        "type": "BlockStored",
        "parent_block_hash": None,
        "token_ids": [],
        "block_size": 0,
        "lora_id": None,
        "lora_name": None,
    }
    batch = [1.0, [placeholder | named, {"type": "BlockRemoved"} | named], 0]
    stored, removed = decode(msgspec.msgpack.encode(batch)).events
    assert isinstance(stored, BlockStored) and isinstance(removed, BlockRemoved)
    assert (stored.medium, stored.locality, removed.medium, removed.locality) == ("STORAGE", "REMOTE", "STORAGE", "REMOTE")


SOURCE = Source(instance="i0")


@st.composite
def chains(draw: st.DrawFn) -> list[WireEvent]:
    """Return drawn events of an engine: a hash always stands for the same tokens, and some events lack parts."""
    events: list[WireEvent] = []
    for first in draw(st.lists(st.integers(0, 5), min_size=1, max_size=6)):
        hashes: list[int | bytes] = [*range(10 * first, 10 * first + draw(st.integers(1, 9)))]
        tokens = [place for place in range(10 * first, 10 * first + len(hashes)) for _ in range(4)][
            : draw(st.sampled_from([None, None, None, -1]))
        ]
        salts: list[list[Any] | None] = [[f"salt {one!r}"] for one in hashes]
        keys = draw(st.sampled_from([None, salts]))
        parent = draw(st.sampled_from([None, None, 10 * first - 10]))
        stored = BlockStored(
            hashes, parent, draw(st.sampled_from([tokens, tokens, []])), 4, medium=draw(st.sampled_from([None, "CPU"])), extra_keys=keys
        )
        made: list[WireEvent] = [stored, stored, BlockRemoved(hashes), AllBlocksCleared()]
        events.append(draw(st.sampled_from(made)))
    return events


@given(chains(), st.integers(1, 8))
@examples(300)
def test_events_in_parts_mean_what_they_mean_whole(events: list[WireEvent], most: int) -> None:
    whole, cut = BlockIndex(), BlockIndex()
    whole.apply(SOURCE, events)
    parts = in_parts(events, most)
    for part in parts:
        cut.apply(SOURCE, part)
    assert cut.blocks(SOURCE) == whole.blocks(SOURCE)
    assert cut._masks == whole._masks
    for part in parts:
        held = [len(one.block_hashes) for one in part if not isinstance(one, AllBlocksCleared)]
        assert sum(held) <= most or len(held) == 1, "one that the index refuses stays whole"
