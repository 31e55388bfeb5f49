"""The settings of one engine: how it schedules steps, the sizes of its memories, and the costs of its steps."""

from dataclasses import dataclass
from typing import Literal

from fairlead_simulator.engine_model.costs import DecodeCost, PrefillCost

Mode = Literal["prefill_priority", "chunked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Settings of an engine. Integers are numbers of tokens unless the name says otherwise."""

    mode: Mode
    block_tokens: int
    kv_tokens: int
    """KV capacity of the GPU, in tokens. Running requests use it and, unless the prefix cache is in host memory, so
    does the prefix cache.
    """
    max_batched_tokens: int
    """Maximum number of tokens in one step. A longer prompt is computed alone under `prefill_priority`, and in chunks
    under `chunked`.
    """
    max_sequences: int = 256
    dram_seconds_per_token: float = 0.0
    """Seconds to load one cached token from host memory, no matter whether host memory has the whole prefix cache or
    extends the cache in GPU memory.
    """
    overhead_seconds: float = 0.0
    """Seconds that a request spends on network, HTTP and tokenizer before it reaches the engine's waiting list."""
    prefill: PrefillCost
    decode: DecodeCost

    @property
    def capacity_blocks(self) -> int:
        return self.kv_tokens // self.block_tokens
