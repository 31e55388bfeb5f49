"""A simulated request: its planned properties, and its progress."""

from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.tables import DEFAULT_CLASS
from fairlead_simulator.engine_model.requests import Phase
from fairlead_simulator.engine_model.trace_memory import TracedRequest

__all__ = ["Job", "Phase"]


@dataclass(slots=True, kw_only=True, eq=False)
class Job(TracedRequest):
    """One request of a run, with the data that its engine and its router need. Times in seconds of the simulation; -1 =
    not yet.
    """

    index: int
    arrives_at: float
    session: str | None
    tenant: str = ""
    priority_class: str = DEFAULT_CLASS
    next_job: "Job | None" = None
    """In a closed loop: the session's next turn, which arrives `next_pause` seconds after this turn has finished; None
    = there is none.
    """
    next_pause: float = 0.0
    request: RoutingRequest | None = None
    """The request, as the router received it; None before the router has received it."""
    heard_first: bool = False
    """Whether the router has been informed of the first token."""
    router: int = 0
    """The index of the router that has the request."""
    believed_tokens: int | None = None
    """Number of cached prompt tokens that the router predicted when it sent the request; None if the request fetched
    some tokens.
    """

    @property
    def ended(self) -> bool:
        return self.phase in (Phase.FINISHED, Phase.REFUSED, Phase.FAILED)

    def later_turns(self) -> "Iterator[Job]":
        """Yield, in a closed loop, the later turns of the session."""
        job = self.next_job
        while job is not None:
            yield job
            job = job.next_job

    def reset(self) -> None:
        """Reset the job to its state before any engine received it, for another attempt."""
        self.generated = self.prefilled = self.held = self.preemptions = 0
        self.first_token_at = self.admitted_at = -1.0
