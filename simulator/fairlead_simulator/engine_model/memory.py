"""The interface of an engine's KV memory, for prompts given as block ids of a trace or as text; and the interface of
observers, such as metrics, that need to know more than when requests begin and end.
"""

from typing import Protocol, TypeVar

from fairlead_simulator.engine_model.requests import EngineRequest

MemoryRequestT = TypeVar("MemoryRequestT", bound=EngineRequest, contravariant=True)


class EngineMemory(Protocol[MemoryRequestT]):
    """A memory of `capacity` engine blocks. A request holds blocks from `take_in` to `let_go`."""

    capacity: int

    @property
    def available(self) -> int:
        """Number of engine blocks that could be allocated now, if necessary by evicting cached blocks."""

    @property
    def usage(self) -> float:
        """Share of the capacity held by requests, 0 to 1; blocks that are only cached count as free."""

    def hit_tokens(self, request: MemoryRequestT) -> int:
        """Return the number of leading tokens of the request's context that need not be computed. The last token is
        never included, because its logits are needed.
        """

    def loaded_tokens(self, request: MemoryRequestT, hit_tokens: int) -> int:
        """Return the number of hit tokens that must be loaded from host memory. Called before `take_in`."""

    def take_in(self, request: MemoryRequestT, hit_tokens: int, reserve: int) -> bool:
        """Give the request blocks for its context if they fit while `reserve` blocks stay free. Return whether they
        fit; if not, nothing changes.
        """

    def allocate(self, blocks: int) -> None:
        """Take blocks for tokens that are decoded, or give blocks back if `blocks` is negative.

        The caller has checked that the blocks are available.
        """

    def computed(self, request: MemoryRequestT) -> None:
        """Let other requests use the whole blocks of a request after its prefill."""

    def let_go(self, request: MemoryRequestT, stored_tokens: int) -> None:
        """Release a request that leaves with `stored_tokens` tokens stored: blocks that other requests could use stay
        cached.
        """


ObservedRequestT = TypeVar("ObservedRequestT", bound=EngineRequest, contravariant=True)


class EngineObserver(Protocol[ObservedRequestT]):
    """An observer that is notified of every event of an engine, in order. Times are in seconds of the engine's
    clock.
    """

    def admitted(self, request: ObservedRequestT, now: float) -> None:
        """Record that a request was scheduled for the first time; its `hit_tokens` are known."""

    def prefilled(self, request: ObservedRequestT, now: float) -> None:
        """Record that a prompt was computed, or was computed again after a preemption: the request has one more
        token.
        """

    def decoded(self, sequences: int, steps: int, first_end: float, last_end: float) -> None:
        """Record that each of `sequences` requests got a token in each of `steps` steps. The first step ended at
        `first_end`, the last at `last_end`.
        """

    def stopped_decoding(self, request: ObservedRequestT) -> None:
        """Record that a request left the decode batch, because it finished, was preempted or was aborted."""

    def preempted(self, request: ObservedRequestT) -> None:
        """Record that the request was preempted and waits to be computed again."""

    def finished(self, request: ObservedRequestT, now: float) -> None:
        """Record that the request has all its tokens."""

    def aborted(self, request: ObservedRequestT) -> None:
        """Record that the engine has released an aborted request."""
