"""The settings of one engine: how it schedules steps, the sizes of its memories, and the costs of its steps."""

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
    """KV capacity of the GPU, in tokens: for running requests and, unless the prefix cache is in host memory, also for
    the prefix cache.
    """
    max_batched_tokens: int
    """Maximum number of tokens in one step. A longer prompt is computed alone under `prefill_priority`, and in chunks
    under `chunked`.
    """
    max_sequences: int = 256
    dram_seconds_per_token: float = 0.0
    """Seconds to load one token of the prefix cache from host memory, whether the whole cache or only its second tier
    is there.
    """
    overhead_seconds: float = 0.0
    """Seconds that a request needs before the engine's first step: network, HTTP, tokenizer."""
    prefill: PrefillCost
    decode: DecodeCost

    @property
    def capacity_blocks(self) -> int:
        return self.kv_tokens // self.block_tokens
