"""What an engine is doing, and what a finished step brought."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Generic

from fairlead_simulator.engine_model.requests import RequestT


class StepKind(Enum):
    """What a step computes."""

    PREFILL = "prefill"
    """Waiting prompts only."""
    DECODE = "decode"
    """A token for every running request."""
    MIXED = "mixed"
    """Both: a token for every running request, and pieces of prompts."""


@dataclass(slots=True)
class EngineStep(Generic[RequestT]):
    """A step in progress, or a run of steps alike that is taken at once. Times in seconds of the engine's clock."""

    kind: StepKind
    began_at: float
    ends_at: float
    chunks: list[tuple[RequestT, int]]
    """Prompts and how many of their tokens each step computes; a run has one at most."""
    steps: int = 1
    run_ends: list[float] = field(default_factory=list)
    """MIXED: when each step of a run ends."""


@dataclass(slots=True)
class StepResult(Generic[RequestT]):
    """What a finished step brought: first tokens, finished requests, and prefills whose KV must now go to another instance."""

    first_tokens: list[RequestT]
    finished: list[RequestT]
    transfers: list[RequestT]
