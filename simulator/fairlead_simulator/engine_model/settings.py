"""The settings of one engine: its scheduling, its memory sizes, and the costs of its steps."""

from dataclasses import dataclass
from typing import Literal

from fairlead_simulator.engine_model.costs import DecodeCost, PrefillCost

Mode = Literal["prefill_priority", "chunked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Settings of an engine. Integers are token counts unless the name says otherwise."""

    mode: Mode
    block_tokens: int
    kv_tokens: int
    """KV capacity of the GPU, for running requests and, without a DRAM tier, also for the prefix cache."""
    max_batched_tokens: int
    """Maximum number of tokens of one step; a longer prompt runs alone with prefill priority, and in pieces when
    chunked.
    """
    max_sequences: int = 256
    dram_seconds_per_token: float = 0.0
    """Seconds to load one token of the prefix cache from host memory, whether the whole cache is there or only the part
    behind the GPU's cache.
    """
    overhead_seconds: float = 0.0
    """Seconds that a request spends before the engine's steps: network, HTTP, tokenizer."""
    prefill: PrefillCost
    decode: DecodeCost

    @property
    def capacity_blocks(self) -> int:
        return self.kv_tokens // self.block_tokens
