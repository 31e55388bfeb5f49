"""Dice: a deterministic source of random choices, so that equal seeds and equal histories give equal
decisions on every machine.
"""

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest


class Dice:
    """Random numbers from hashes of a counter under the seed: independent of the platform and of other dice."""

    def __init__(self, seed: int) -> None:
        self._seed = seed & 0xFFFF_FFFF_FFFF_FFFF
        self._thrown = 0

    def below(self, count: int) -> int:
        """A number from 0 to count - 1. Raises ValueError for count < 1."""
        if count < 1:
            raise ValueError(f"cannot choose among {count}")
        self._thrown += 1
        return int(xxh3_64_intdigest(self._thrown.to_bytes(8, "little"), self._seed)) % count

    def fraction(self) -> float:
        """A number between 0 and 1, both excluded."""
        self._thrown += 1
        return (int(xxh3_64_intdigest(self._thrown.to_bytes(8, "little"), self._seed)) + 0.5) / 2**64

    def shuffled(self, count: int) -> list[int]:
        """The numbers from 0 to count - 1 in random order."""
        order = list(range(count))
        thrown, seed = self._thrown, self._seed
        for last in range(count - 1, 0, -1):  # `below`, written out
            thrown += 1
            other = xxh3_64_intdigest(thrown.to_bytes(8, "little"), seed) % (last + 1)
            order[last], order[other] = order[other], order[last]
        self._thrown = thrown
        return order

    def one_of(self, choices: Sequence[int]) -> int:
        """A random one of the choices, which must not be empty."""
        return choices[0] if len(choices) == 1 else choices[self.below(len(choices))]
