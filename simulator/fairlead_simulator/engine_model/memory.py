"""The interface of an engine's KV memory, for prompts given as block ids of a trace or as text; and the interface of
observers, such as metrics, that need more than the beginning and end of requests.
"""

from typing import Protocol, TypeVar

from fairlead_simulator.engine_model.requests import EngineRequest

MemoryRequestT = TypeVar("MemoryRequestT", bound=EngineRequest, contravariant=True)


class EngineMemory(Protocol[MemoryRequestT]):
    """Memory of `capacity` engine blocks. A request holds blocks from `take_in` to `let_go`."""

    capacity: int

    @property
    def available(self) -> int:
        """Engine blocks that could be allocated now, if necessary by evicting cached ones."""

    @property
    def usage(self) -> float:
        """Share of the capacity held by requests, 0 to 1; blocks that are only cached count as free."""

    def hit_tokens(self, request: MemoryRequestT) -> int:
        """Leading tokens of its context that need not be computed; never all of them, because the last token's logits
        are needed.
        """

    def loaded_tokens(self, request: MemoryRequestT, hit_tokens: int) -> int:
        """Of these hit tokens, those that have to be loaded from host memory. Asked before `take_in`."""

    def take_in(self, request: MemoryRequestT, hit_tokens: int, reserve: int) -> bool:
        """Give a request blocks for its context, if they fit in addition to a reserve of this many blocks; otherwise
        nothing happens.
        """

    def allocate(self, blocks: int) -> None:
        """Take blocks for tokens that are decoded (negative: give them back).

        The caller has checked that they are available.
        """

    def computed(self, request: MemoryRequestT) -> None:
        """The prefill of a request has ended: other requests can use its whole blocks from now on."""

    def let_go(self, request: MemoryRequestT, stored_tokens: int) -> None:
        """The request leaves, with this many tokens stored: blocks that other requests could use stay cached."""


ObservedRequestT = TypeVar("ObservedRequestT", bound=EngineRequest, contravariant=True)


class EngineObserver(Protocol[ObservedRequestT]):
    """Is notified of every event, in order. Times are in seconds of the engine's clock."""

    def admitted(self, request: ObservedRequestT, now: float) -> None:
        """A request was scheduled for the first time; its `hit_tokens` are known."""

    def prefilled(self, request: ObservedRequestT, now: float) -> None:
        """A prompt was computed, or recomputed after a preemption: the request has one more token."""

    def decoded(self, sequences: int, steps: int, first_end: float, last_end: float) -> None:
        """Each of `sequences` requests has got a token in each of `steps` steps, which ended from `first_end` to
        `last_end`."""

    def stopped_decoding(self, request: ObservedRequestT) -> None:
        """A request left the decode batch: finished, preempted or aborted."""

    def preempted(self, request: ObservedRequestT) -> None:
        """The request waits again, to be recomputed."""

    def finished(self, request: ObservedRequestT, now: float) -> None:
        """The request has all its tokens."""

    def aborted(self, request: ObservedRequestT) -> None:
        """The engine has released an aborted request."""
