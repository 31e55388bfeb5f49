"""Two interfaces. `EngineMemory` is an engine's KV memory, whether prompts are given as a trace's block ids or as text.
`EngineObserver` is for observers, such as metrics, that need every event of an engine.
"""

from typing import Protocol, TypeVar

from fairlead_simulator.engine_model.requests import EngineRequest

MemoryRequestT = TypeVar("MemoryRequestT", bound=EngineRequest, contravariant=True)


class EngineMemory(Protocol[MemoryRequestT]):
    """A memory of `capacity` engine blocks. A request holds blocks from `take_in` to `let_go`."""

    capacity: int

    @property
    def available(self) -> int:
        """Number of engine blocks that could be allocated now, including the blocks that eviction from the cache would
        free.
        """

    @property
    def usage(self) -> float:
        """Share of the capacity held by requests, 0 to 1; blocks that are only cached count as free."""

    def hit_tokens(self, request: MemoryRequestT) -> int:
        """Return the number of leading tokens of the request's context that are cached and need not be computed. The
        last token always counts as not cached, because the engine needs its logits.
        """

    def loaded_tokens(self, request: MemoryRequestT, hit_tokens: int) -> int:
        """Return the number of tokens, among the tokens that `hit_tokens` counts, that must be loaded from host memory.
        Must be called before `take_in`.
        """

    def take_in(self, request: MemoryRequestT, hit_tokens: int, reserve: int) -> bool:
        """Give the request blocks for its context if the blocks fit, with `reserve` blocks left free. Return whether
        they fit; if not, nothing changes.
        """

    def allocate(self, blocks: int) -> None:
        """Allocate `blocks` blocks for decoded tokens, or free blocks if the number is negative.

        The caller has checked that enough blocks are available.
        """

    def computed(self, request: MemoryRequestT) -> None:
        """Let other requests use the whole blocks of a request after its prefill."""

    def let_go(self, request: MemoryRequestT, stored_tokens: int) -> None:
        """Release the blocks of a request that leaves with `stored_tokens` tokens in memory. Blocks that other requests
        could use stay cached.
        """


ObservedRequestT = TypeVar("ObservedRequestT", bound=EngineRequest, contravariant=True)


class EngineObserver(Protocol[ObservedRequestT]):
    """An observer that is notified of every event of an engine, in order. Times are in seconds of the engine's
    clock.
    """

    def admitted(self, request: ObservedRequestT, now: float) -> None:
        """Record that the engine scheduled a request for the first time. The engine has already set the request's
        `hit_tokens`.
        """

    def prefilled(self, request: ObservedRequestT, now: float) -> None:
        """Record that a request's context was computed, for the first time or again after a preemption. The request has
        one more token.
        """

    def decoded(self, sequences: int, steps: int, first_end: float, last_end: float) -> None:
        """Record that each of `sequences` requests got a token in each of `steps` steps. The first step ended at
        `first_end`, the last at `last_end`.
        """

    def stopped_decoding(self, request: ObservedRequestT) -> None:
        """Record that a request left the decode batch, because it finished, was preempted or was aborted."""

    def preempted(self, request: ObservedRequestT) -> None:
        """Record that the request was preempted and now waits until its context is computed again."""

    def finished(self, request: ObservedRequestT, now: float) -> None:
        """Record that the request has all its tokens."""

    def aborted(self, request: ObservedRequestT) -> None:
        """Record that the engine has released an aborted request."""
