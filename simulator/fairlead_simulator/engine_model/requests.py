"""A request in the form that an engine needs: its length and its progress."""

from dataclasses import dataclass
from enum import Enum
from typing import TypeVar


class Phase(Enum):
    """The phase of a request. FINISHED, REFUSED and FAILED are final; an engine sets only the phases from WAITING to
    FINISHED.
    """

    PLANNED = "planned"
    ROUTED = "routed"
    """Submitted to the router's scheduler, where it waits."""
    WAITING = "waiting"
    """In an engine's waiting list, for the first time or after a preemption."""
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
    """Number of tokens to generate, at least 1; the prefill produces the first token."""
    slow_factor: float = 1.0
    """Factor on the time of the request's prefill, and of the decode steps in which it takes part; for injecting
    failures.
    """

    priority: int = 0
    """Requests with a lower number go first, as in a vLLM started with `--scheduling-policy priority`."""

    phase: Phase = Phase.PLANNED
    instance: str = ""
    decode_instance: str | None = None
    """The instance that decodes the answer; None = the instance that computes the prompt. If it is another instance,
    the KV blocks are kept where they were computed until `Instance.release`.
    """
    kept: bool = False
    """For requests of one token: whether the KV blocks stay where they were computed until `Instance.release`, so that
    another engine can fetch them.
    """
    admitted_at: float = -1.0
    first_token_at: float = -1.0
    """Time of the first token, for the attempt that succeeded."""
    finished_at: float = -1.0
    hit_tokens: int = 0
    """Number of prompt tokens that were cached when the engine first admitted the request."""
    preemptions: int = 0

    generated: int = 0
    """Number of tokens produced before the request joined the decode batch; `Instance.generated` returns the present
    number.
    """
    prefilled: int = 0
    """With chunked prefill: number of context tokens computed so far."""
    joined_step: int = 0
    finish_step: int = 0
    batch_place: int = 0
    """A number that the batch gives to the request when it joins; it differs from the number before a preemption."""

    @property
    def context_tokens(self) -> int:
        """Number of tokens of the prompt and of the answer so far. A prefill must compute all these tokens or find them
        in the cache.
        """
        return self.input_tokens + self.generated


RequestT = TypeVar("RequestT", bound=EngineRequest)
