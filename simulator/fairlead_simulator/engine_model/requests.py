"""A request as an engine sees it: its length and its progress."""

from dataclasses import dataclass
from enum import Enum
from typing import TypeVar


class Phase(Enum):
    """The phase of a request. FINISHED, REFUSED and FAILED are final; an engine sets only the phases from WAITING to
    FINISHED.
    """

    PLANNED = "planned"
    ROUTED = "routed"
    """Submitted to the router's scheduler and waiting there."""
    WAITING = "waiting"
    """In an engine's waiting list (first time, or after a preemption)."""
    PREFILLING = "prefilling"
    TRANSFERRING = "transferring"
    DECODING = "decoding"
    FINISHED = "finished"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(slots=True, kw_only=True, eq=False)
class EngineRequest:
    """A request to generate exactly `output_tokens` tokens. Times in seconds of the engine's clock; -1 = not yet.

    Only the engine's memory knows the prompt's content, so each kind of memory has its own kind of request.
    """

    input_tokens: int
    output_tokens: int
    """Number of tokens, at least 1: the first one comes with the prefill."""
    slow_factor: float = 1.0
    """Factor on the time of the request's prefill, and of decode steps in which it takes part (failure injection)."""

    phase: Phase = Phase.PLANNED
    instance: str = ""
    decode_instance: str | None = None
    """The instance that decodes the answer, None = the one that computes the prompt. If it is another instance, the KV
    stays where it was computed until `Instance.release`.
    """
    kept: bool = False
    """For one-token requests: whether the KV stays where it was computed until `Instance.release`, for another engine
    to fetch.
    """
    admitted_at: float = -1.0
    first_token_at: float = -1.0
    """Time of the first token, for the attempt that succeeded."""
    finished_at: float = -1.0
    hit_tokens: int = 0
    """Prompt tokens that the engine did not compute when it first admitted the request."""
    preemptions: int = 0

    generated: int = 0
    """Tokens produced before the request joined the decode batch; `Instance.generated` returns the present number."""
    prefilled: int = 0
    """With chunked prefill: context tokens present so far."""
    joined_step: int = 0
    finish_step: int = 0
    batch_place: int = 0
    """A number that distinguishes this stay in a decode batch from a stay before a preemption."""

    @property
    def context_tokens(self) -> int:
        """The tokens of the prompt and the answer so far, which a prefill must bring into memory."""
        return self.input_tokens + self.generated


RequestT = TypeVar("RequestT", bound=EngineRequest)
