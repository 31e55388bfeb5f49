"""The sections `spec.engine` and `spec.adapters` of an InferencePool: the engine of an instance and its adapters."""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

from dataclasses import dataclass
from typing import Any, ClassVar

from fairlead.schemas.shapes import Rule, duration, nested, number, text, texts, whole
from fairlead.tables import EngineSpecFacts

MAX_ADAPTERS = 256


def adapter_names() -> Any:
    """Return the definition of the field `adapters`: the LoRA adapters of a pool, or of the file that `fairlead serve`
    reads.
    """
    return texts(
        (
            "LoRA adapters that every engine also serves (--lora-modules of vLLM), as clients name them in "
            "requests. Only for engine.type vllm."
        ),
        pattern=r"^\S+$",
        max_length=256,
        max_items=MAX_ADAPTERS,
        convert=str,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSpec:
    """How the engine's metrics are read."""

    path: str = text("Path of the Prometheus metrics on the engine's port.", "/metrics", pattern="^/", max_length=256)
    kv_usage: str | None = text(
        "Name of the gauge with the used share (0 to 1) of the KV cache; by default the one of engine.type.",
        None,
        pattern="^[a-zA-Z_:][a-zA-Z0-9_:]*$",
        max_length=256,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSpec:
    """How a simulated engine behaves."""

    time_scale: float = number("How many times faster than a real engine it computes.", 1.0, minimum=0.001, maximum=10000)
    block_size: int = whole("Tokens per block of the engine's prefix cache.", 16, minimum=1, maximum=4096)
    decode_step_seconds: float = duration("Time of one decode step.", "20ms", minimum=0.0, maximum=60.0)
    max_running: int = whole("Requests computed at once.", 256, minimum=1, maximum=100000)
    max_waiting: int = whole("Requests that may wait inside the engine; it answers 503 to further ones.", 1024, minimum=0, maximum=1000000)
    startup_seconds: float = duration("Time from start to ready, as if weights were loaded.", "1s", minimum=0.0, maximum=3600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec(EngineSpecFacts):
    """The engine that runs in an instance, and the figures about it that routing needs."""

    RULES: ClassVar = (
        Rule(
            cel="self.type == 'simulated' || !has(self.simulated)",
            holds=lambda engine: engine.type == "simulated" or engine.simulated is None,
            field="simulated",
            message="engine.simulated is only for engine.type simulated; remove it",
        ),
        Rule(
            cel="self.type != 'sglang' || !has(self.kvTransfer)",
            holds=lambda engine: engine.type != "sglang" or engine.kv_transfer is None,
            field="kvTransfer",
            message="engine.kvTransfer is not for engine.type sglang, which has no such protocol; remove it",
        ),
    )

    replace_stalled_after_seconds: float = duration(
        (
            "How long an engine may have requests without making progress (as routers see it) before another "
            "instance replaces it. 0s: it is never replaced."
        ),
        "60s",
        minimum=0.0,
        maximum=86400.0,
    )
    metrics: MetricsSpec = nested(MetricsSpec, "Where the engine's own metrics are read.")
    simulated: SimulatedSpec | None = nested(SimulatedSpec, "How the simulated engine behaves; only for type simulated.", optional=True)
