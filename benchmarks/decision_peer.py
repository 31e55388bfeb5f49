"""Measures the cost per decision of the parts of NVIDIA Dynamo's router that can be called from Python.

`decisions.py --peer-python` runs this file under a Python that has `ai-dynamo-runtime`.

Prints a JSON list of [part, instances, p50, p99], in microseconds of wall time. The prompt is 16,384 token ids (64 KB)
in blocks of 512. Dynamo takes token ids and no text. So the time of tokenizing, which Fairlead's router does not need,
is not measured, in Dynamo's favour. The tree holds 200,000 blocks. A whole selection is measured with an empty index,
because only engines' events could fill it. Its figure is the cost of hashing, looking up, weighing loads and returning
from its own threads.
"""

import asyncio
import json
import random
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any

TOKENS = 16_384
BLOCK_TOKENS = 512
BLOCKS = TOKENS // BLOCK_TOKENS
BLOCKS_IN_INDEX = 200_000
CALLS = 1_000


def main(sizes: list[int]) -> None:
    """Measure hashing once, and matching and selecting at each number of instances."""
    from dynamo import _core  # type: ignore[import-not-found] # the peer's own environment has it

    source = random.Random(7)
    tokens = [source.randrange(128_000) for _ in range(TOKENS)]
    found: list[tuple[str, int, float, float]] = []
    found.append(("compute_block_hash_for_seq", 0, *percentiles(lambda: _core.compute_block_hash_for_seq(tokens, BLOCK_TOKENS))))
    hashes = _core.compute_block_hash_for_seq(tokens, BLOCK_TOKENS)
    for size in sizes:
        tree = filled(_core, hashes, size, source)
        found.append(("RadixTree.find_matches", size, *percentiles(partial(tree.find_matches, hashes))))
        found.append(("SelectionService.select", size, *asyncio.run(selections(_core, tokens, size))))
    json.dump(found, sys.stdout)
    print()


def filled(core: Any, hashes: list[int], instances: int, source: random.Random) -> Any:
    """Return a tree that is filled with prompts. Every second instance holds a leading part of the measured prompt."""
    tree = core.RadixTree()
    for worker in range(instances):
        held = hashes[: source.randrange(1, len(hashes) + 1)] if worker % 2 else []
        store(tree, worker, held)
        for _ in range(BLOCKS_IN_INDEX // BLOCKS // instances):
            store(tree, worker, [source.getrandbits(63) for _ in range(BLOCKS)])
    return tree


def store(tree: Any, worker: int, hashes: list[int]) -> None:
    """Record in the tree that an instance stored these blocks. Each block follows the block before it."""
    if hashes:
        blocks = [{"block_hash": one, "tokens_hash": one, "mm_extra_info": None} for one in hashes]
        event = {"event_id": 0, "data": {"stored": {"parent_hash": None, "blocks": blocks}}, "dp_rank": 0}
        tree.apply_event(worker, json.dumps(event).encode())


async def selections(core: Any, tokens: list[int], instances: int) -> tuple[float, float]:
    """Return p50 and p99 in microseconds of a selection among this number of idle instances."""
    service = core.SelectionService(indexer_threads=1)
    for worker in range(instances):
        await service.upsert_worker(
            {
                "worker_id": worker,
                "model_name": "m",
                "block_size": BLOCK_TOKENS,
                "endpoint": f"http://127.0.0.1:{9_000 + worker}",
                "kv_events_endpoint": f"tcp://127.0.0.1:{20_000 + worker}",
                "total_kv_blocks": 4_000,
            }
        )
    durations: list[int] = []
    for _ in range(CALLS):
        started = perf_counter_ns()
        await service.select({"model_name": "m", "token_ids": tokens})
        durations.append(perf_counter_ns() - started)
    service.shutdown()
    return of(durations)


def percentiles(call: Callable[[], object]) -> tuple[float, float]:
    """Return p50 and p99 in microseconds of a call."""
    durations: list[int] = []
    for _ in range(CALLS):
        started = perf_counter_ns()
        call()
        durations.append(perf_counter_ns() - started)
    return of(durations)


def of(durations: list[int]) -> tuple[float, float]:
    """Return p50 and p99 in microseconds of these durations, which are in nanoseconds. The first tenth of the durations
    is left out.
    """
    ordered = sorted(durations[len(durations) // 10 :])
    return ordered[len(ordered) // 2] / 1000, ordered[int(len(ordered) * 0.99)] / 1000


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]])
