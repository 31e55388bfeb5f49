"""Chooses a loopback address for each pod, from 127.N.0.1 upward.

A released address is used again only after all other addresses of the range were tried.
"""

from dataclasses import dataclass, field

FIRST_NODE = 40
LAST_NODE = 99
_PER_SUBNET = 250
_CAPACITY = 250 * _PER_SUBNET


@dataclass(slots=True)
class AddressPool:
    """The pod addresses of one node, 127.`node`.x.y.

    `position` advances with every address that is taken, and begins again at the end of the range. So a released
    address is not used again soon.
    """

    node: int
    position: int = 0
    used: set[str] = field(default_factory=set)

    def take(self) -> str:
        """Return an address that is not in use, and mark it as used. Raises LookupError if all addresses are in use."""
        for _ in range(_CAPACITY):
            address = f"127.{self.node}.{self.position // _PER_SUBNET}.{self.position % _PER_SUBNET + 1}"
            self.position = (self.position + 1) % _CAPACITY
            if address not in self.used:
                self.used.add(address)
                return address
        raise LookupError(f"all {_CAPACITY} pod addresses of the node are in use")

    def give_back(self, address: str) -> None:
        """Release the address of a pod that is gone."""
        self.used.discard(address)
