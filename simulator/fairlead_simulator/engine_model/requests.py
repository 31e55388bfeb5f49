"""A request in the form that an engine needs: its length and its progress."""

from dataclasses import dataclass
from enum import Enum
from typing import TypeVar


class Phase(Enum):
    """The phase of a request. FINISHED, REFUSED and FAILED are final. An engine sets only WAITING, PREFILLING,
    TRANSFERRING, DECODING and FINISHED.
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
    """A request to generate exactly `output_tokens` tokens. Times are in seconds of the engine's clock; -1 = not yet.

    The prompt's content is not part of this class. Each kind of engine memory has a subclass with the content in the
    form that the memory needs.
    """

    input_tokens: int
    output_tokens: int
    """Number of tokens to generate, at least 1; the prefill produces the first token."""
    slow_factor: float = 1.0
    """Factor by which the request is slower than usual, to simulate a failure. It multiplies the variable cost of the
    request's prefill, and the fixed cost of each decode step in which the request takes part.
    """

    priority: int = 0
    """The request's priority number. Requests with a lower number are admitted first, as in a vLLM started with
    `--scheduling-policy priority`.
    """

    phase: Phase = Phase.PLANNED
    instance: str = ""
    decode_instance: str | None = None
    """The instance that decodes the answer; None = the instance that computes the prompt. A different instance has to
    fetch the KV blocks, so the first instance keeps them until `Instance.release`.
    """
    kept: bool = False
    """Whether the engine keeps the KV blocks after the request's end, until `Instance.release`, so that another engine
    can fetch them. Only used for requests of one output token.
    """
    admitted_at: float = -1.0
    first_token_at: float = -1.0
    """Time of the first token. If the request was attempted several times, it is the time in the attempt that
    succeeded.
    """
    finished_at: float = -1.0
    hit_tokens: int = 0
    """Number of prompt tokens that were cached when the engine first admitted the request."""
    preemptions: int = 0

    generated: int = 0
    """Number of tokens produced before the request last joined the decode batch. `Instance.generated` also counts the
    tokens produced after that.
    """
    prefilled: int = 0
    """With chunked prefill: number of context tokens computed so far."""
    joined_step: int = 0
    finish_step: int = 0
    batch_place: int = 0
    """The number that the decode batch gives to the request when it joins. A request that joins again after a
    preemption gets a new number.
    """

    @property
    def context_tokens(self) -> int:
        """Number of tokens of the prompt and of the answer so far. A prefill must compute all these tokens or find them
        in the cache.
        """
        return self.input_tokens + self.generated


RequestT = TypeVar("RequestT", bound=EngineRequest)
