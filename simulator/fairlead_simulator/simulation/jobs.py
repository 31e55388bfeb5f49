"""A simulated request: its plan, and its progress."""

from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.tables import DEFAULT_CLASS
from fairlead_simulator.engine_model.requests import Phase
from fairlead_simulator.engine_model.trace_memory import TracedRequest

__all__ = ["Job", "Phase"]


@dataclass(slots=True, kw_only=True, eq=False)
class Job(TracedRequest):
    """One request of a run, as its engine and its router see it. Times in seconds of the simulation; -1 = not yet."""

    index: int
    arrives_at: float
    session: str | None
    tenant: str = ""
    priority_class: str = DEFAULT_CLASS
    next_job: "Job | None" = None
    """In a closed loop: the session's next turn, which arrives `next_pause` seconds after this turn finished."""
    next_pause: float = 0.0
    request: RoutingRequest | None = None
    """The request as the router received it."""
    heard_first: bool = False
    """Whether the router knows of the first token."""
    router: int = 0
    """The number of the router that has the request."""
    believed_tokens: int | None = None
    """Cached tokens of the prompt as the router assumed when it sent the request; None if the request fetched some of
    them.
    """

    @property
    def ended(self) -> bool:
        return self.phase in (Phase.FINISHED, Phase.REFUSED, Phase.FAILED)

    def later_turns(self) -> "Iterator[Job]":
        """Yield, in a closed loop, the session's turns after this turn."""
        job = self.next_job
        while job is not None:
            yield job
            job = job.next_job

    def reset(self) -> None:
        """Reset the job to its state before it reached any engine, for another attempt."""
        self.generated = self.prefilled = self.held = self.preemptions = 0
        self.first_token_at = self.admitted_at = -1.0
