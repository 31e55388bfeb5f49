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
    """One request of a run, with the data that its engine and its router need. Times are in seconds of the simulation;
    -1 = not yet.
    """

    index: int
    arrives_at: float
    session: str | None
    tenant: str = ""
    priority_class: str = DEFAULT_CLASS
    next_job: "Job | None" = None
    """The next turn of the session in a closed loop. It arrives `next_pause` seconds after this turn has finished. None
    = this is the last turn, or the loop is not closed.
    """
    next_pause: float = 0.0
    request: RoutingRequest | None = None
    """The request as the router received it; None until the request arrives at the router."""
    heard_first: bool = False
    """Whether the router has received the first token."""
    router: int = 0
    """The index of the router that received the request."""
    believed_tokens: int | None = None
    """Number of cached prompt tokens that the router predicted when it sent the request to an instance; None if the
    instance had to fetch tokens from another instance.
    """

    @property
    def ended(self) -> bool:
        return self.phase in (Phase.FINISHED, Phase.REFUSED, Phase.FAILED)

    def later_turns(self) -> "Iterator[Job]":
        """Yield the later turns of the session in a closed loop; nothing if the loop is not closed."""
        job = self.next_job
        while job is not None:
            yield job
            job = job.next_job

    def reset(self) -> None:
        """Reset the job's progress to the state before any engine received it, so that another engine can be tried."""
        self.generated = self.prefilled = self.held = self.preemptions = 0
        self.first_token_at = self.admitted_at = -1.0
