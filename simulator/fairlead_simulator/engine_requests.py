"""What goes into a simulated engine and what comes out: settings, requests, their life inside, and events."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from fairlead_simulator.engine_model.prefix_tree import PrefixNode


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """One instance. Times are in engine time; a decode step takes `decode_step + per_context_token·Σcontext + per_sequence·batch`."""

    prefill_tokens_per_second: float = 6250.0
    decode_step_nanoseconds: int = 20_000_000
    decode_nanoseconds_per_context_token: int = 72
    """57,344 bytes of KV per token read at 800 GB/s."""
    decode_nanoseconds_per_sequence: int = 50_000
    kv_cache_tokens: int = 1_198_372
    block_tokens: int = 16
    block_bytes: int = 64
    """Bytes of prompt that make one block; equal bytes are equal tokens."""
    max_running: int = 256
    max_waiting: int = 1024

    @property
    def capacity_blocks(self) -> int:
        return self.kv_cache_tokens // self.block_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """One generation. Always produces exactly `max_tokens` tokens (at least 1)."""

    id: str
    prompt: bytes
    prompt_tokens: int
    max_tokens: int
    answer: Callable[[int], bytes] | None = None
    """The text of the first n tokens of the answer, so that it can be found in the cache by the next turn; None: answers are not cached."""
    slow_factor: float = 1.0
    """Prefill of this request, and decode steps it takes part in, take this many times as long (failure injection)."""
    finish_reason: str = "length"
    pooled: bool = False
    """Only the prompt is computed, as for an embedding: `max_tokens` is 1, and that token is neither produced nor counted."""


class Phase(Enum):
    """Where a request is."""

    WAITING = "waiting"
    PREFILLING = "prefilling"
    DECODING = "decoding"
    FINISHED = "finished"
    ABORTED = "aborted"


class Generation:
    """A request inside an engine. Written by the engine only; times are nanoseconds of engine time, -1 while unknown."""

    __slots__ = (
        "admitted_ns",
        "arrived_ns",
        "cached_tokens",
        "finish_step",
        "finished_ns",
        "first_token_ns",
        "generated",
        "joined_step",
        "last_token_ns",
        "node",
        "phase",
        "preemptions",
        "request",
        "tree_blocks",
    )

    def __init__(self, request: EngineRequest, arrived_ns: int) -> None:
        self.request = request
        self.phase = Phase.WAITING
        self.arrived_ns = arrived_ns
        self.admitted_ns = -1
        self.first_token_ns = -1
        self.last_token_ns = -1
        self.finished_ns = -1
        self.cached_tokens = 0
        """Prompt tokens found in the cache when first scheduled."""
        self.preemptions = 0
        self.generated = 0
        """Tokens produced before `joined_step`; ask the engine for the present number."""
        self.joined_step = 0
        self.finish_step = 0
        self.node: PrefixNode | None = None
        self.tree_blocks = 0

    @property
    def ended(self) -> bool:
        return self.phase in (Phase.FINISHED, Phase.ABORTED)

    def context_text(self) -> bytes:
        """Prompt plus the answer so far: what a recomputation must prefill."""
        request = self.request
        if request.answer is None or self.generated == 0:
            return request.prompt
        return request.prompt + request.answer(self.generated)


class EventKind(Enum):
    """What an event tells."""

    FIRST_TOKEN = "first token"  # noqa: S105  a token of text, not a secret
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """Something a client would see, at its exact engine time."""

    kind: EventKind
    generation: Generation
    at_ns: int
