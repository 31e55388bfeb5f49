"""Dice: a deterministic source of random choices. Equal seeds and equal sequences of calls give equal choices on every
machine.
"""

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest


class Dice:
    """Random numbers from hashes of a seed and a counter. They do not depend on the platform or on other dice."""

    def __init__(self, seed: int) -> None:
        self._seed = seed & 0xFFFF_FFFF_FFFF_FFFF
        self._thrown = 0

    def below(self, count: int) -> int:
        """Return a random integer from 0 to count - 1. Raises ValueError for count < 1."""
        if count < 1:
            raise ValueError(f"cannot choose among {count}")
        self._thrown += 1
        return int(xxh3_64_intdigest(self._thrown.to_bytes(8, "little"), self._seed)) % count

    def fraction(self) -> float:
        """Return a random number between 0 and 1, both excluded."""
        self._thrown += 1
        return (int(xxh3_64_intdigest(self._thrown.to_bytes(8, "little"), self._seed)) + 0.5) / 2**64

    def shuffled(self, count: int) -> list[int]:
        """Return the integers from 0 to count - 1 in random order."""
        order = list(range(count))
        thrown, seed = self._thrown, self._seed
        for last in range(count - 1, 0, -1):  # `below`, written out
            thrown += 1
            other = xxh3_64_intdigest(thrown.to_bytes(8, "little"), seed) % (last + 1)
            order[last], order[other] = order[other], order[last]
        self._thrown = thrown
        return order

    def one_of(self, choices: Sequence[int]) -> int:
        """Return a random element of `choices`, which must not be empty."""
        return choices[0] if len(choices) == 1 else choices[self.below(len(choices))]
