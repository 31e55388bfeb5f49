"""What an engine asks of its KV memory, however prompts are known to it: by a trace's block ids, or by their text."""

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
