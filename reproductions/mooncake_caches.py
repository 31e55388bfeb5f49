"""Measures the hits of a cache by its size and by its eviction policy: Mooncake's Table 1."""

from collections.abc import Sequence
from typing import Final, get_args

from fairlead_simulator.engine_model.block_caches import Eviction, hit_share
from fairlead_simulator.experiments.arrival_plans import Workload
from reproductions.runs import table
from reproductions.sections import Context

SIZES: Final = (100_000, 50_000, 30_000, 10_000, 1_000)
NAMES: Final[dict[Eviction, str]] = {"lru": "LRU", "lfu": "LFU", "length-aware": "LengthAware"}


def describe(context: Context, loaded: Workload) -> str:
    """Return the part on cache policies as Markdown."""
    prompts = [row.hash_ids for row in loaded.rows]
    sizes = SIZES[-2:] if context.quick else SIZES
    endless = sum(map(len, prompts))
    rows = [
        [NAMES[eviction], *(f"{hit_share(prompts, size, eviction):.3f}" for size in (endless, *sizes))] for eviction in get_args(Eviction)
    ]
    return f"""### What a cache gives up

**Claim** (Table 1, on another trace): with one cache for all, LRU finds the most, as what is used again is used soon.

**Run.** The prompts of {len(prompts):,} requests, one after the other, in one cache of so many blocks of 512 tokens; the share of all blocks
that was there. A block counts by itself, also without those before it.

{table(["gives up", "endless", *(f"{size:,}" for size in sizes)], rows)}

{verdict(rows)} A simulated instance takes one of them with `--eviction`."""


def verdict(rows: Sequence[Sequence[str]]) -> str:
    """Return the text about the sizes at which LRU finds the most blocks."""
    (_, *lru), *others = rows
    lost = sum(any(float(other[place + 1]) > float(share) for other in others) for place, share in enumerate(lru))
    where = "every size" if not lost else f"{len(lru) - lost} of {len(lru)} sizes"
    return f"LRU finds the most at {where}: the claim is **{'reproduced' if lost <= 1 else 'not reproduced'}**."
