"""A request in simulation: what is planned for it, and where it has got to."""

from dataclasses import dataclass
from enum import Enum

from fairlead.routing.contracts.requests import RoutingRequest


class Phase(Enum):
    """Where a job is. FINISHED, REFUSED and FAILED are final."""

    PLANNED = "planned"
    ROUTED = "routed"
    """Submitted to the scheduler and waiting there."""
    WAITING = "waiting"
    """In an engine's waiting list (first time, or after a preemption)."""
    PREFILLING = "prefilling"
    TRANSFERRING = "transferring"
    DECODING = "decoding"
    FINISHED = "finished"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One request. Times in seconds of the simulation; -1 = not yet. `blocks` are the prompt's full prefix blocks."""

    index: int
    arrives_at: float
    input_tokens: int
    output_tokens: int
    """At least 1: the first comes with the prefill."""
    blocks: tuple[int, ...]
    session: str | None
    next_job: "Job | None" = None
    """Closed loop: the session's next turn, which arrives `next_pause` seconds after this one finished."""
    next_pause: float = 0.0
    request: RoutingRequest | None = None
    """What the router was told."""

    phase: Phase = Phase.PLANNED
    instance: str = ""
    decode_instance: str | None = None
    first_token_at: float = -1.0
    """Of the attempt that succeeded."""
    finished_at: float = -1.0
    hit_tokens: int = 0
    """Prompt tokens the engine did not compute when it first admitted the job."""
    preemptions: int = 0
    heard_first: bool = False
    """The router knows of the first token."""

    generated: int = 0
    prefilled: int = 0
    """Chunked prefill: context tokens present so far."""
    held: int = 0
    """Prefix blocks pinned for it."""
    joined_step: int = 0
    finish_step: int = 0
    batch_place: int = 0
    """Tells this stay in a decode batch from an earlier one, before a preemption."""

    @property
    def ended(self) -> bool:
        return self.phase in (Phase.FINISHED, Phase.REFUSED, Phase.FAILED)

    def reset(self) -> None:
        """Back to before it reached any engine: another attempt."""
        self.generated = self.prefilled = self.held = self.preemptions = 0
        self.first_token_at = -1.0
