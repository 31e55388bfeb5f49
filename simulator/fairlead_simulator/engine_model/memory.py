"""What an engine asks of its KV memory, however prompts are known to it: by a trace's block ids, or by their text; and
what it tells observers that want more of it than when requests begin and end, as its metrics do.
"""

from typing import Protocol, TypeVar

from fairlead_simulator.engine_model.requests import EngineRequest

MemoryRequestT = TypeVar("MemoryRequestT", bound=EngineRequest, contravariant=True)


class EngineMemory(Protocol[MemoryRequestT]):
    """Memory of `capacity` engine blocks. A request holds blocks from `take_in` to `let_go`."""

    capacity: int

    @property
    def available(self) -> int:
        """Engine blocks that could be allocated now, by evicting what is only cached if need be."""

    @property
    def usage(self) -> float:
        """Share of the capacity held by requests, 0 to 1; what is only cached counts as free."""

    def hit_tokens(self, request: MemoryRequestT) -> int:
        """Leading tokens of its context that need not be computed; never all of them, as the last one's logits are
        needed."""

    def loaded_tokens(self, request: MemoryRequestT, hit_tokens: int) -> int:
        """Of these hit tokens, those that have to be loaded from host memory. Asked before `take_in`."""

    def take_in(self, request: MemoryRequestT, hit_tokens: int, reserve: int) -> bool:
        """Give a request blocks for its context, if they fit beside a reserve of this many blocks; otherwise nothing
        happens.
        """

    def allocate(self, blocks: int) -> None:
        """Take blocks for tokens that are decoded (negative: give them back).

        The caller made sure that they are available.
        """

    def computed(self, request: MemoryRequestT) -> None:
        """Its prefill has ended: others can use its whole blocks from now on."""

    def let_go(self, request: MemoryRequestT, stored_tokens: int) -> None:
        """The request leaves, with this many tokens stored: blocks that others could use stay cached."""


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
