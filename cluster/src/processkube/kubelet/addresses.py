"""Chooses the loopback address of each pod: from 127.N.0.1 upward, and never an address in use.

A released address is used again only after all other addresses have been used.
"""

from dataclasses import dataclass, field

FIRST_NODE = 40
LAST_NODE = 99
_PER_SUBNET = 250
_CAPACITY = 250 * _PER_SUBNET


@dataclass(slots=True)
class AddressPool:
    """The addresses of one node, 127.`node`.x.y.

    `position` advances with every address taken, so that a released address is not used again soon.
    """

    node: int
    position: int = 0
    used: set[str] = field(default_factory=set)

    def take(self) -> str:
        """Take a free address. Raises LookupError when all are in use."""
        for _ in range(_CAPACITY):
            address = f"127.{self.node}.{self.position // _PER_SUBNET}.{self.position % _PER_SUBNET + 1}"
            self.position = (self.position + 1) % _CAPACITY
            if address not in self.used:
                self.used.add(address)
                return address
        raise LookupError(f"all {_CAPACITY} pod addresses of the node are in use")

    def give_back(self, address: str) -> None:
        """Free the address of a pod that is gone."""
        self.used.discard(address)
