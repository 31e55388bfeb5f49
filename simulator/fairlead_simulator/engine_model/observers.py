"""Observers that want more of an engine than when requests begin and end: its metrics."""

from typing import Protocol, TypeVar

from fairlead_simulator.engine_model.requests import EngineRequest

ObservedRequestT = TypeVar("ObservedRequestT", bound=EngineRequest, contravariant=True)


class EngineObserver(Protocol[ObservedRequestT]):
    """Told of everything at its time, in order. Times in seconds of the engine's clock."""

    def admitted(self, request: ObservedRequestT, now: float) -> None:
        """Scheduled for the first time; `hit_tokens` are known."""

    def prefilled(self, request: ObservedRequestT, now: float) -> None:
        """Its prompt was computed, or computed again after a preemption: it has one more token."""

    def decoded(self, sequences: int, steps: int, first_end: float, last_end: float) -> None:
        """Each of `sequences` requests has got a token in each of `steps` steps, which ended from `first_end` to
        `last_end`."""

    def stopped_decoding(self, request: ObservedRequestT) -> None:
        """It left the decode batch: finished, preempted or aborted."""

    def preempted(self, request: ObservedRequestT) -> None:
        """The request waits again, to be recomputed."""

    def finished(self, request: ObservedRequestT, now: float) -> None:
        """The request has all its tokens."""

    def aborted(self, request: ObservedRequestT) -> None:
        """The engine has let go of a request that was given up."""
