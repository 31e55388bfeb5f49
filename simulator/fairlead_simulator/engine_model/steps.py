"""An engine's step in progress, and the result of a finished step."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic

from fairlead_simulator.engine_model.decode_batch import DecodeBatch
from fairlead_simulator.engine_model.requests import RequestT


class StepKind(Enum):
    """The kind of work that a step computes."""

    PREFILL = "prefill"
    """A step that computes only waiting prompts."""
    DECODE = "decode"
    """A step that decodes one token for every running request."""
    MIXED = "mixed"
    """A step that decodes one token for every running request and computes chunks of prompts."""


@dataclass(slots=True)
class EngineStep(Generic[RequestT]):
    """A step in progress, or several steps that are computed at once (a run). Times are in seconds of the engine's
    clock.
    """

    kind: StepKind
    began_at: float
    ends_at: float
    chunks: list[tuple[RequestT, int]]
    """The prompts, each with the number of its tokens that one step computes. A run of several steps has at most one
    prompt.
    """
    steps: int = 1
    run_ends: list[float] = field(default_factory=list)
    """For MIXED runs of several steps: the time at which each step ends; otherwise empty."""

    def over_by(self, now: float, batch: DecodeBatch[RequestT]) -> int:
        """Return the number of steps of a run that have ended by `now`. The run's last step is not counted, because
        `step_ended` counts it.
        """
        if self.steps < 2:
            return 0
        over = bisect_right(self.run_ends, now) if self.run_ends else batch.whole_steps(now - self.began_at)
        return min(over, self.steps - 1)

    def cut_short(self, now: float, batch: DecodeBatch[RequestT]) -> bool:
        """End a run after the step in progress. Return whether the run now ends earlier than planned."""
        if self.steps < 2:
            return False
        over = bisect_left(self.run_ends, now) if self.run_ends else batch.whole_steps(now - self.began_at)
        if over + 1 >= self.steps:
            return False
        self.steps = over + 1
        self.ends_at = self.run_ends[over] if self.run_ends else self.began_at + batch.seconds(over + 1)
        return True


@dataclass(slots=True)
class StepResult(Generic[RequestT]):
    """The result of a finished step: the requests that got their first token, the requests that finished, and the
    prefilled requests whose KV blocks must now be sent to another instance.
    """

    first_tokens: list[RequestT]
    finished: list[RequestT]
    transfers: list[RequestT]
