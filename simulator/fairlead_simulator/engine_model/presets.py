"""Presets of engines as data. Each preset describes one instance with a known hardware and a known model.

Constants marked (measured) are from the publication that the preset names, or from its code. Constants marked
(estimated) are computed from the hardware's bandwidth and memory. No preset was compared with a real engine, so all are
called estimated wherever they are shown. Where figures from data sheets could be compared with a real engine, they were
wrong by a factor of two to three (docs/simulator.md, "Fit the engine to yours").
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fairlead.errors import UnknownName
from fairlead_simulator.engine_model.block_caches import Eviction
from fairlead_simulator.engine_model.costs import DecodeCost, PrefillCost, TransferCost
from fairlead_simulator.engine_model.settings import EngineSettings
from fairlead_simulator.traces.rows import TraceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePreset(EngineSettings):
    """The settings of an instance's engine, with the properties of its environment: caches in host memory, the link to
    other instances, and the SLO's targets.
    """

    name: str
    about: str
    dram_tokens: int | None
    """Capacity in tokens of a prefix cache in host memory instead of GPU memory. Its hits are loaded at
    `dram_seconds_per_token`. None = the prefix cache is in GPU memory.
    """
    host_tokens: int = 0
    """Capacity in tokens of a second prefix cache, in host memory, that extends the cache in GPU memory; 0 = no second
    cache.
    """
    eviction: Eviction = "lru"
    """The rule by which a prefix cache of `dram_tokens` evicts blocks. The other caches always evict the least recently
    used block.
    """
    max_input_tokens: int | None
    """Limit on the prompt length: prompts of this many tokens or more cannot run on the instance; None = no limit."""
    transfer: TransferCost
    slo_ttft_seconds: float
    slo_tpot_seconds: float
    is_estimated: bool = True
    """Whether the costs come from publications and data sheets. True for all presets; False for costs that were fitted
    to requests of a real engine (`fairlead_simulator.engine_fit`).
    """

    @property
    def origin(self) -> str:
        """The preset's name, followed by "(estimated)" or "(fitted)" for its costs."""
        return f"{self.name} (estimated)" if self.is_estimated else f"{self.name} (fitted)"

    def at_speed(self, speed: float) -> "EnginePreset":
        """Return the same engine on hardware that computes `speed` times as fast; memory and links do not change."""
        return self if speed == 1.0 else replace(self, prefill=self.prefill.at_speed(speed), decode=self.decode.at_speed(speed))

    @property
    def cache_tokens(self) -> int:
        """The number of tokens that a router assumes one instance can cache."""
        return self.kv_tokens if self.dram_tokens is None else self.dram_tokens


PRESETS: dict[str, EnginePreset] = {
    preset.name: preset
    for preset in (
        EnginePreset(
            name="dualmap-910b4-qwen7b",
            about="DualMap's testbed: Qwen2.5-7B on an Ascend 910B4 32 GB, prefix cache in 64 GiB of host memory.",
            mode="prefill_priority",
            block_tokens=128,
            kv_tokens=209_920,  # (estimated) 32 GB x 0.9 - weights - activations = 12 GB = 1,640 blocks
            dram_tokens=1_198_372,  # (measured) 64 GiB / 57,344 B
            max_batched_tokens=20_480,
            max_input_tokens=20_480,
            prefill=PrefillCost(per_token=0.00016),  # (measured)
            decode=DecodeCost(fixed=0.020, per_context_token=7.2e-8, per_sequence=0.00005),  # (estimated) 57,344 B at 800 GB/s
            transfer=TransferCost(bytes_per_token=57_344, bytes_per_second=25e9, latency_seconds=0.005),
            slo_ttft_seconds=5.0,
            slo_tpot_seconds=0.1,
        ),
        EnginePreset(
            name="dualmap-910b3-qwen14b",
            about="DualMap's second testbed: Qwen2.5-14B on an Ascend 910B3 64 GB, prefix cache in 64 GiB of host memory.",
            mode="prefill_priority",
            block_tokens=128,
            kv_tokens=131_072,  # (estimated) 64 GB x 0.9 - 29.6 GB - 2 GB = 26 GB
            dram_tokens=349_525,  # (measured) 64 GiB / 196,608 B
            max_batched_tokens=10_240,
            max_input_tokens=10_240,
            prefill=PrefillCost(per_token=0.000127),  # (measured, by a comment in the code)
            decode=DecodeCost(fixed=0.030, per_context_token=1.6e-7, per_sequence=0.00005),  # (estimated) 196,608 B at 1.2 TB/s
            transfer=TransferCost(bytes_per_token=196_608, bytes_per_second=25e9, latency_seconds=0.005),
            slo_ttft_seconds=5.0,
            slo_tpot_seconds=0.1,
        ),
        EnginePreset(
            name="mooncake-a800-llama70b",
            about="Mooncake's testbed: LLaMA2-70B on a node of 8 A800, KV cache in host memory, 800 Gb/s between nodes.",
            mode="chunked",
            block_tokens=128,
            kv_tokens=1_310_720,  # (estimated) 8 x 80 GB x 0.9 - 140 GB = 436 GB / 327,680 B
            dram_tokens=3_000_320,  # (estimated) about 1 TB per node
            max_batched_tokens=8_192,
            max_input_tokens=None,
            # (measured on 2 x A100: 28.93 + 0.1822 x + 4.0e-3 s + 2.55e-6 x s ms;
            # here a quarter of it, as if 8 GPUs scaled linearly)
            prefill=PrefillCost(fixed=0.0072, per_token=4.555e-5, per_context=1.0e-6, per_pair=6.375e-10),
            decode=DecodeCost(fixed=0.020, per_context_token=2.5e-8, per_sequence=0.0001),  # (estimated)
            transfer=TransferCost(bytes_per_token=327_680, bytes_per_second=100e9, latency_seconds=0.005),  # (measured) GQA fp16, 800 Gb/s
            slo_ttft_seconds=30.0,
            slo_tpot_seconds=0.1,
        ),
        EnginePreset(
            name="vllm-h100-8b",
            about="vLLM V1 with chunked prefill: an 8B model with GQA on an H100 80 GB, prefix cache in GPU memory.",
            mode="chunked",
            block_tokens=16,
            kv_tokens=409_600,  # (estimated) 80 GB x 0.9 - 16 GB - 2 GB = 54 GB / 131,072 B
            dram_tokens=None,
            max_batched_tokens=8_192,
            max_input_tokens=None,
            prefill=PrefillCost(fixed=0.006, per_token=3.2e-5, per_pair=5.3e-10),  # (estimated) half of the peak FLOP rate
            decode=DecodeCost(fixed=0.007, per_context_token=4.9e-8, per_sequence=0.00003),  # (estimated) 131,072 B at 2.7 TB/s
            transfer=TransferCost(bytes_per_token=131_072, bytes_per_second=50e9, latency_seconds=0.002),
            slo_ttft_seconds=2.0,
            slo_tpot_seconds=0.05,
        ),
        EnginePreset(
            name="simulated",
            about="The engine of pools with engine.type simulated: like dualmap-910b4-qwen7b, with all of its KV cache in GPU memory.",
            mode="prefill_priority",
            block_tokens=16,
            kv_tokens=1_198_368,
            dram_tokens=None,
            max_batched_tokens=20_480,
            max_input_tokens=None,
            prefill=PrefillCost(per_token=0.00016),
            decode=DecodeCost(fixed=0.020, per_context_token=7.2e-8, per_sequence=0.00005),
            transfer=TransferCost(bytes_per_token=57_344, bytes_per_second=25e9, latency_seconds=0.005),
            slo_ttft_seconds=5.0,
            slo_tpot_seconds=0.1,
        ),
    )
}


def preset(name: str) -> EnginePreset:
    """Return the preset of that name. Raises UnknownName, listing the known names."""
    found = PRESETS.get(name)
    if found is None:
        raise UnknownName("preset", name, tuple(PRESETS))
    return found


MOST_BUSY = 0.9
"""Maximum share of an engine's time for prefills in the estimate of its decode step time. With a larger share, too
little time would be left for decode steps, so the estimate would be meaningless.
"""
FURTHEST = 20.0
"""Maximum factor by which a model's decode costs may be multiplied or divided. A larger factor would mean that the
model describes another engine.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualLoad:
    """The mean load of one instance of a pool."""

    requests_per_second: float
    output_tokens: float
    """Mean output tokens of a request."""
    context_tokens: float
    """Mean number of tokens in a sequence's context while the sequence is decoded."""
    prefill_seconds: float
    """Mean seconds of a request's prefill, which computes the uncached part of its prompt."""


def usual_load(rows: Sequence[TraceRow], hits: Sequence[int], engine: EnginePreset, requests_per_second: float) -> UsualLoad:
    """Return the mean load of an instance that serves `requests_per_second` requests with the lengths of `rows`. `hits`
    has, for each row, the number of prompt tokens that an unlimited cache would hold.
    """
    outputs = sum(row.output_length for row in rows)
    contexts = sum(row.output_length * (row.input_length + row.output_length / 2) for row in rows)
    prefills = sum(engine.prefill.seconds(max(1, row.input_length - hit), row.input_length) for row, hit in zip(rows, hits, strict=True))
    return UsualLoad(
        requests_per_second=requests_per_second,
        output_tokens=outputs / len(rows),
        context_tokens=contexts / outputs if outputs else 0.0,
        prefill_seconds=prefills / len(rows),
    )


def with_measured_steps(engine: EnginePreset, step_seconds: float, load: UsualLoad, *, prefills: bool) -> EnginePreset | None:
    """Return the engine with its decode costs scaled to `step_seconds`, the time per output token measured in a pool;
    None if the costs would have to change by more than a factor of `FURTHEST`. `prefills` says whether the instances
    also compute prompts.

    All decode costs are multiplied by one factor. It is chosen so that a decode step of the mean batch takes
    `step_seconds` minus the share of time that prefills take. This share is subtracted because routers measure the time
    per output token including the prefills that delay tokens. By Little's law, the mean batch is the number of requests
    per second times the duration of an answer.
    """
    busy = min(MOST_BUSY, load.requests_per_second * load.prefill_seconds) if prefills else 0.0
    batch = min(float(engine.max_sequences), max(1.0, load.requests_per_second * load.output_tokens * step_seconds))
    cost = engine.decode
    modelled = cost.fixed + cost.per_sequence * batch + cost.per_context_token * batch * load.context_tokens
    times = modelled / (step_seconds * (1 - busy))
    if not 1 / FURTHEST <= times <= FURTHEST:
        return None
    return replace(engine, decode=cost.at_speed(times))
