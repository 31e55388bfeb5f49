"""What an engine can be doing, and what a finished step brought."""

from dataclasses import dataclass
from enum import Enum

from fairlead_simulator.simulation.jobs import Job


class StepKind(Enum):
    """What the engine is doing."""

    IDLE = "idle"
    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


@dataclass(slots=True)
class StepResult:
    """What a finished step brought: first tokens, finished requests, and prefills whose KV must now go to another instance."""

    first_tokens: list[Job]
    finished: list[Job]
    transfers: list[Job]
