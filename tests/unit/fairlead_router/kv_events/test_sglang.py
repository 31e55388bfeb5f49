"""SGLang's KV events in bytes that its own code made, and the page on which it says that it publishes them."""

import json
from typing import Any

import pytest

from fairlead.kv_events.block_index import BlockIndex, IndexCounts
from fairlead.kv_events.block_keys import block_keys
from fairlead.kv_events.sources import Source
from fairlead_router.kv_events.sources import EventSource, SourcesUnreadable, ToldSources, priority_fault, read_sources
from fairlead_router.kv_events.wire import decode

RANK = Source(instance="i0")
PROMPT = list(range(1, 17))
STORED, BRANCHES, OFFLOADED, CLEARED = (
    bytes.fromhex(payload)
    for payload in (
        "93cb408f4000000000009287a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392d3cf97adeedb59e05bcf4ebf"
        "a8a1f3c34151b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473980102030405060708aa626c6f636b5f73697a65"
        "04a76c6f72615f6964c0a66d656469756da347505588a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392d3ed"
        "db4ab93695109cd3e6e688fa1045e868b1706172656e745f626c6f636b5f68617368cf4ebfa8a1f3c34151a9746f6b656e5f6964739809"
        "0a0b0c0d0e0f10aa626c6f636b5f73697a6504a76c6f72615f6964c0a66d656469756da3475055aa73657373696f6e5f6964a3732d3100",
        "93cb408f4800000000009387a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391d3be82e4e1bc106ae8b17061"
        "72656e745f626c6f636b5f68617368cf4ebfa8a1f3c34151a9746f6b656e5f696473941e1f2021aa626c6f636b5f73697a6504a76c6f72"
        "615f6964c0a66d656469756da347505588a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392cf28662441559d"
        "07d6cf1eb890cefee4f5ffb1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473980102030405060708aa626c6f636b"
        "5f73697a6504a76c6f72615f6964c0a66d656469756da3475055aa63616368655f73616c74a874656e616e742d3188a474797065ab426c"
        "6f636b53746f726564ac626c6f636b5f68617368657392cf201885bca758f255cf406917a1568f1f97b1706172656e745f626c6f636b5f"
        "68617368c0a9746f6b656e5f696473980102030405060708aa626c6f636b5f73697a6504a76c6f72615f6964c0a66d656469756da34750"
        "55a96c6f72615f6e616d65a373716c00",
        "93cb408f5000000000009287a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392d3eddb4ab93695109cd3e6e6"
        "88fa1045e868b1706172656e745f626c6f636b5f68617368cf4ebfa8a1f3c34151a9746f6b656e5f69647398090a0b0c0d0e0f10aa626c"
        "6f636b5f73697a6504a76c6f72615f6964c0a66d656469756daa4350555f50494e4e454483a474797065ac426c6f636b52656d6f766564"
        "ac626c6f636b5f68617368657393d3eddb4ab93695109cd3e6e688fa1045e868d3be82e4e1bc106ae8a66d656469756da347505500",
        "93cb408f5800000000009181a474797065b0416c6c426c6f636b73436c656172656400",
    )
)
"""Four batches that SGLang 0.5.23 (`KVCacheEventRecorder`, `KVEventBatch`) made of a tree with pages of 4 tokens.

A prompt of four pages; then a branch after its second page, its first two pages salted and with an adapter; then its
last two pages moved to CPU memory and the branch removed; then nothing.
"""


def after(*batches: bytes) -> BlockIndex:
    index = BlockIndex()
    for batch in batches:
        index.apply(RANK, decode(batch).events)
    assert index.counts == IndexCounts()
    return index


def test_a_batch_names_its_stamp_and_rank() -> None:
    batch = decode(STORED)
    assert (batch.ts, batch.data_parallel_rank, len(batch.events)) == (1000.0, 0, 2)


def test_the_pages_of_a_prompt_are_found_by_its_tokens() -> None:
    index = after(STORED)
    assert index.block_size(RANK) == 4
    assert index.match(RANK, block_keys(PROMPT, 4)) == 4
    assert index.match(RANK, block_keys([*PROMPT[:8], 30, 31, 32, 33], 4)) == 2


def test_a_branch_a_salted_prompt_and_an_adapters_are_prompts_of_their_own() -> None:
    index = after(STORED, BRANCHES)
    assert index.match(RANK, block_keys([*PROMPT[:8], 30, 31, 32, 33], 4)) == 3
    assert index.match(RANK, block_keys(PROMPT, 4, cache_salt="tenant-1")) == 2
    assert index.match(RANK, block_keys(PROMPT, 4, lora_name="sql")) == 2
    assert index.match(RANK, block_keys(PROMPT, 4, cache_salt="tenant-2")) == 0


def test_pages_in_cpu_memory_are_held_and_removed_ones_are_not() -> None:
    index = after(STORED, BRANCHES, OFFLOADED)
    assert index.blocks(RANK) == {"GPU": 6, "host": 2}
    assert index.match(RANK, block_keys(PROMPT, 4)) == 4
    assert index.match(RANK, block_keys([*PROMPT[:8], 30, 31, 32, 33], 4)) == 2


def test_a_flushed_cache_holds_nothing() -> None:
    index = after(STORED, BRANCHES, OFFLOADED, CLEARED)
    assert index.match(RANK, block_keys(PROMPT, 4)) == index.match(RANK, block_keys(PROMPT, 4, cache_salt="tenant-1")) == 0


PUBLISHER = {"publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": 5557, "topic": "", "block_size": 16, "dp_size": 1}


def sources(**kv_events: Any) -> tuple[EventSource, ...]:
    return told(**kv_events).sources


def told(**kv_events: Any) -> ToldSources:
    answer = {"model_path": "m", "page_size": 16, "version": "0.5.23", "internal_states": [{}], "kv_events": {**PUBLISHER, **kv_events}}
    return read_sources(json.dumps(answer).encode(), "sglang", "10.0.0.7:30000")


def test_the_server_info_tells_the_ports_of_rank_0_and_every_rank_adds_its_number() -> None:
    assert sources(dp_size=2, topic="kv", replay_endpoint_port_base=5657) == (
        EventSource(rank=0, endpoint="tcp://10.0.0.7:5557", replay_endpoint="tcp://10.0.0.7:5657", topic="kv"),
        EventSource(rank=1, endpoint="tcp://10.0.0.7:5558", replay_endpoint="tcp://10.0.0.7:5658", topic="kv"),
    )
    assert sources() == (EventSource(rank=0, endpoint="tcp://10.0.0.7:5557", replay_endpoint=None, topic=""),)
    (elsewhere,) = sources(endpoint_host="10.9.9.9")
    assert (elsewhere.endpoint, elsewhere.connects) == ("tcp://10.9.9.9:5557", True), "no router connects there"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"enable_priority_scheduling": False}, "without --enable-priority-scheduling"),
        ({"enable_priority_scheduling": True, "schedule_low_priority_values_first": True}, "the lowest class first"),
        ({"enable_priority_scheduling": True, "schedule_low_priority_values_first": False}, None),
        ({"enable_priority_scheduling": "?"}, None),
        ({}, None),
    ],
)
def test_the_server_info_tells_whether_the_highest_priority_goes_first(told: dict[str, Any], words: str | None) -> None:
    fault = priority_fault(json.dumps(told).encode(), "sglang")
    assert fault is None if words is None else words in (fault or "")
    assert priority_fault(json.dumps(told).encode(), "vllm") is None


@pytest.mark.parametrize("answer", [b'{"kv_events": null}', b'{"model_path": "m"}'])
def test_a_server_without_kv_events_has_no_sources(answer: bytes) -> None:
    assert read_sources(answer, "sglang", "10.0.0.7:30000") == ToldSources()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dp_size": 0}, "0 data-parallel ranks"),
        ({"dp_size": 10**9}, "1000000000 data-parallel ranks"),
        ({"endpoint_port_base": "5557"}, "does not describe sources"),
    ],
)
def test_ports_and_ranks_that_cannot_be_are_told(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SourcesUnreadable, match=words):
        sources(**change)


def test_ports_that_cannot_be_are_told_and_the_other_ranks_followed() -> None:
    found = told(endpoint_port_base=65535, dp_size=2)
    assert [one.rank for one in found.sources] == [0] and ":65536" in found.faults
    assert told(endpoint_port_base=-5).sources == ()
    assert told(replay_endpoint_port_base=2**62).sources == ()
