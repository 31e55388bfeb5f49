"""Consistent hashing: a ring of instance anchors, and the pair of independent rings that gives each key two candidates.

A key belongs to the first anchor at or after its position, clockwise; past the last anchor it wraps to the first. Positions are xxh3-64, so every
process, today and tomorrow, maps a key alike. Adding an instance moves only keys it takes over, removing one only keys it had.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct

from xxhash import xxh3_64_intdigest

from fairlead.instances import Role
from fairlead.tables import InstanceEntry

FULL_CIRCLE = 1 << 64
FIRST_SALT = 0x46616972_00000001
SECOND_SALT = 0x4C656164_00000002

_KEY = Struct("<IQ")
Key = tuple[int, int]
"""A hash key: depth in blocks and the chained hash at that depth; depth 0 = the prompt's first bytes."""


def key_bytes(key: Key) -> bytes:
    """The 12 bytes of a key that are hashed onto a ring."""
    return _KEY.pack(*key)


class HashRing:
    """Anchors of instances on a circle of `size` positions, given as (position, instance). Two anchors at one position: the smaller id owns it."""

    def __init__(self, points: Iterable[tuple[int, str]], size: int = FULL_CIRCLE, salt: int = FIRST_SALT) -> None:
        ordered = sorted(points)
        self._positions = [position for position, _ in ordered]
        self._owners = [owner for _, owner in ordered]
        self._size = size
        self._salt = salt
        self.instances: tuple[str, ...] = tuple(sorted(set(self._owners)))

    @staticmethod
    def of(instances: Iterable[InstanceEntry], salt: int = FIRST_SALT) -> "HashRing":
        """The ring of a table's accepting instances: `anchors` x `weight` points each (at least one when both are above 0)."""
        points: list[tuple[int, str]] = []
        for entry in instances:
            names = (f"{entry.id}#{number}".encode() for number in range(anchor_count(entry)))
            points.extend((xxh3_64_intdigest(name, salt), entry.id) for name in names)
        return HashRing(points, salt=salt)

    def position(self, key: Key) -> int:
        """Where the key lies on this ring."""
        return xxh3_64_intdigest(_KEY.pack(*key), self._salt)

    def owner_at(self, position: int) -> str | None:
        """The instance a position belongs to, None on an empty ring."""
        if not self._owners:
            return None
        index = bisect_left(self._positions, position)
        return self._owners[index if index < len(self._owners) else 0]

    def walk_at(self, position: int) -> Iterator[str]:
        """Distinct instances clockwise from a position, the owner first."""
        start = bisect_left(self._positions, position)
        seen: set[str] = set()
        count = len(self._owners)
        for step in range(count):
            owner = self._owners[(start + step) % count]
            if owner not in seen:
                seen.add(owner)
                yield owner
                if len(seen) == len(self.instances):
                    return

    def owner(self, key: Key) -> str | None:
        """The instance a key belongs to, None on an empty ring."""
        return self.owner_at(self.position(key))

    def walk(self, key: Key) -> Iterator[str]:
        """Distinct instances clockwise from a key, its owner first."""
        return self.walk_at(self.position(key))

    def shares(self) -> Mapping[str, float]:
        """Part of the circle (0-1) each instance owns; sums to 1 unless the ring is empty."""
        shares = dict.fromkeys(self.instances, 0.0)
        if not self._owners:
            return shares
        before = self._positions[-1] - self._size
        for position, owner in zip(self._positions, self._owners, strict=True):
            shares[owner] += (position - before) / self._size
            before = position
        return shares


class DualRing:
    """Two rings with independent hash functions; a key's pair is its owner on the first and a different one on the second.

    When both rings name one instance, `distinct` takes the next distinct instance clockwise on the second ring, which keeps pairs stable when
    instances come and go; `paper` takes the one after it by index (DualMap Eq. 5), which does not.
    """

    def __init__(self, first: HashRing, second: HashRing, mode: str = "distinct") -> None:
        self.first = first
        self.second = second
        self._by_index = mode == "paper"

    @staticmethod
    def of(instances: Sequence[InstanceEntry], mode: str = "distinct") -> "DualRing":
        """The pair of rings of a table's accepting instances."""
        return DualRing(HashRing.of(instances, FIRST_SALT), HashRing.of(instances, SECOND_SALT), mode)

    def pair(self, key: Key) -> tuple[str, ...]:
        """The key's candidates: two distinct instances, one when the ring has only one, none when it is empty."""
        return self.pair_at(self.first.position(key), self.second.position(key))

    def pair_at(self, first_position: int, second_position: int) -> tuple[str, ...]:
        """As `pair`, for positions."""
        first = self.first.owner_at(first_position)
        if first is None:
            return ()
        second = self.second.owner_at(second_position)
        if second is not None and second != first:
            return (first, second)
        names = self.first.instances
        if len(names) < 2:
            return (first,)
        if self._by_index:
            return (first, names[(names.index(first) + 1) % len(names)])
        return (first, next(instance for instance in self.second.walk_at(second_position) if instance != first))

    def shares(self) -> Mapping[str, float]:
        """Mean share (0-1) of each instance over both rings: the part of keys that have it as a candidate, halved."""
        second = self.second.shares()
        return {instance: (share + second.get(instance, 0.0)) / 2 for instance, share in self.first.shares().items()}


def anchor_count(entry: InstanceEntry) -> int:
    """Ring points of an instance: anchors x weight, rounded, at least 1; 0 when it does not accept, does not prefill or has none."""
    if not entry.accepting or entry.role is Role.DECODE or entry.anchors <= 0 or entry.weight <= 0:
        return 0
    return max(1, round(entry.anchors * entry.weight))


def key_shares(instances: Sequence[InstanceEntry]) -> Mapping[str, float]:
    """Share (0-1) of the key space of every accepting instance of a table, mean over both rings; to show, not to route by."""
    return DualRing.of(instances).shares()
