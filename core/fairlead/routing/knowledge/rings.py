"""Consistent hashing: a ring of instance anchors, and the independent rings (usually two) that give each key its
candidates.

A key belongs to the first anchor at or after its position, clockwise. A key behind the last anchor belongs to the first
anchor of the ring. Positions are xxh3-64 hashes, so every process of every version maps a key to the same position. If
an instance is added, only the keys that it takes over move. If an instance is removed, only its own keys move.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from operator import sub
from struct import Struct
from types import MappingProxyType

from xxhash import xxh3_64_intdigest

from fairlead.instances import Role
from fairlead.tables import InstanceEntry
from fairlead.targets import chosen_rank, instance_of, rank_of

FULL_CIRCLE = 1 << 64
FIRST_SALT = 0x46616972_00000001
SECOND_SALT = 0x4C656164_00000002
SALTS = (FIRST_SALT, SECOND_SALT, 0x46616972_00000003, 0x4C656164_00000004)
"""One salt per ring, so that a key's positions on different rings are independent."""

_KEY = Struct("<IQ")
Key = tuple[int, int]
"""A hash key: a depth in blocks and the chained hash at that depth; depth 0 = a hash of the prompt's first bytes."""


class HashRing:
    """A ring of instance anchors on a circle of `size` positions. Each anchor is a pair (position, instance).

    If two anchors share a position, the position belongs to the instance with the smaller id.
    """

    def __init__(self, points: Iterable[tuple[int, str]], size: int = FULL_CIRCLE, salt: int = FIRST_SALT) -> None:
        ordered = sorted(points)
        self.size = size
        self.instances: tuple[str, ...] = tuple(sorted({owner for _, owner in ordered}))
        self._positions = [position for position, _ in ordered]
        self._owners = [owner for _, owner in ordered]
        self._salt = salt

    @property
    def positions(self) -> Sequence[int]:
        """Positions of the anchors, in order; several anchors may share a position."""
        return self._positions

    @staticmethod
    def of(instances: Iterable[InstanceEntry], salt: int = FIRST_SALT) -> "HashRing":
        """Return the ring of a table's accepting instances, with `anchors` x `weight` points for each instance (at
        least one when both are above 0).
        """
        return HashRing.of_anchors(((entry.id, anchor_count(entry)) for entry in instances), salt)

    @staticmethod
    def of_anchors(anchors: Iterable[tuple[str, int]], salt: int = FIRST_SALT) -> "HashRing":
        """Return the ring for the given (instance, number of points) pairs; each instance occurs once.

        The ranks of one instance share its points. So the owner of a key does not depend on the number of ranks that
        are known. A key changes its rank only if that rank leaves or a new rank takes the key over.
        """
        ring = HashRing((), salt=salt)
        counts = {target: count for target, count in sorted(anchors) if count > 0}
        positions: list[int] = []
        owners: list[str] = []
        ranks: dict[str, list[str]] = {}
        for target, count in counts.items():
            if rank_of(target) is None:
                positions.extend(_positions_of(target, count, salt))
                owners.extend(repeat(target, count))
            else:
                ranks.setdefault(instance_of(target), []).append(target)
        for instance, targets in ranks.items():
            count = counts[targets[0]]
            shared = _shared_out(instance, count, salt, tuple(targets))
            without = [target for target in targets if target not in shared]  # more ranks than points, say
            positions.extend((*_positions_of(instance, count, salt), *(_positions_of(target, 1, salt)[0] for target in without)))
            owners.extend((*shared, *without))
        order = sorted(range(len(positions)), key=positions.__getitem__)
        ring.instances = tuple(counts)
        ring._positions = [positions[place] for place in order]
        ring._owners = [owners[place] for place in order]
        return ring

    def position(self, key: Key) -> int:
        """The key's position on this ring."""
        return xxh3_64_intdigest(_KEY.pack(*key), self._salt)

    def owner_at(self, position: int) -> str | None:
        """Return the instance to which a position belongs; None on an empty ring."""
        if not self._owners:
            return None
        index = bisect_left(self._positions, position)
        return self._owners[index if index < len(self._owners) else 0]

    def walk_at(self, position: int) -> Iterator[str]:
        """Yield the distinct instances clockwise from a position, its owner first."""
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
        """Return the instance to which a key belongs; None on an empty ring."""
        return self.owner_at(self.position(key))

    def walk(self, key: Key) -> Iterator[str]:
        """Yield the distinct instances clockwise from a key's position, its owner first."""
        return self.walk_at(self.position(key))

    def shares(self) -> Mapping[str, float]:
        """Return the part of the circle (0-1) that each instance owns; the parts add up to 1 unless the ring is
        empty.
        """
        owned = dict.fromkeys(self.instances, 0)
        before = chain((position - self.size for position in self._positions[-1:]), self._positions)
        for owner, arc in zip(self._owners, map(sub, self._positions, before), strict=True):
            owned[owner] += arc
        return {instance: arcs / self.size for instance, arcs in owned.items()}


@lru_cache(maxsize=4096)
def _positions_of(instance: str, count: int, salt: int) -> Sequence[int]:
    """Return the sorted positions of an instance's anchors, ready to be merged. The result is cached, because a table
    change leaves nearly all instances unchanged.
    """
    return sorted(xxh3_64_intdigest(f"{instance}#{number}".encode(), salt) for number in range(count))


@lru_cache(maxsize=1024)
def _shared_out(instance: str, count: int, salt: int, targets: Sequence[str]) -> Sequence[str]:
    """Return the target that owns each of the instance's anchors, in the order of `_positions_of`."""
    return [chosen_rank(str(position), targets) for position in _positions_of(instance, count, salt)]


class CandidateRings:
    """Up to four rings with independent hash functions. A key's candidates are its owners on the rings, all different.

    If a ring names an instance that an earlier ring has already named, the rule `distinct` takes the next unnamed
    instance clockwise on that ring. Candidates are then stable: a new instance displaces at most one of them. The rule
    `paper` takes the next instance by index (DualMap Eq. 5); its candidates are not stable.
    """

    def __init__(self, rings: Sequence[HashRing], mode: str = "distinct") -> None:
        self.rings = tuple(rings)
        self._by_index = mode == "paper"

    @staticmethod
    def of(instances: Sequence[InstanceEntry], count: int = 2, mode: str = "distinct") -> "CandidateRings":
        """Return the rings that give each key `count` candidates (1-4) among a table's accepting instances."""
        rings = [HashRing.of(instances, salt) for salt in SALTS[:count]]
        return DualRing(rings[0], rings[1], mode) if count == 2 else CandidateRings(rings, mode)

    @property
    def instances(self) -> tuple[str, ...]:
        """All instances on the rings, in order of id."""
        return self.rings[0].instances

    def candidates(self, key: Key) -> tuple[str, ...]:
        """Return the key's candidates: as many distinct instances as there are rings, or all instances when there are
        fewer.
        """
        return self.candidates_at([ring.position(key) for ring in self.rings])

    def candidates_at(self, positions: Sequence[int]) -> tuple[str, ...]:
        """Return the candidates of a key that has these positions on the rings."""
        found: list[str] = []
        for ring, position in zip(self.rings, positions, strict=True):
            other = next((instance for instance in self._preference(ring, position) if instance not in found), None)
            if other is None:
                break
            found.append(other)
        return tuple(found)

    def _preference(self, ring: HashRing, position: int) -> Iterable[str]:
        if not self._by_index:
            return ring.walk_at(position)
        owner = ring.owner_at(position)
        if owner is None:
            return ()
        start = ring.instances.index(owner)
        return ring.instances[start:] + ring.instances[:start]


class DualRing(CandidateRings):
    """Two rings, as in DualMap. This class is a faster `CandidateRings` for exactly two rings, because every request
    under the policy `dualmap` uses it.
    """

    def __init__(self, first: HashRing, second: HashRing, mode: str = "distinct") -> None:
        super().__init__((first, second), mode)
        self.first = first
        self.second = second

    def candidates(self, key: Key) -> tuple[str, ...]:
        """Return the two instances of the key's pair; a single instance if the rings have only one, empty if they have
        none.
        """
        return self.pair_at(self.first.position(key), self.second.position(key))

    def pair_at(self, first_position: int, second_position: int) -> tuple[str, ...]:
        """Return the pair of a key that has these positions on the two rings."""
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
        """Return each instance's share (0-1) of a ring, averaged over both rings. Because each key has two candidates,
        the share of the keys that have the instance as a candidate is twice as large.
        """
        second = self.second.shares()
        return {instance: (share + second.get(instance, 0.0)) / 2 for instance, share in self.first.shares().items()}


def anchor_count(entry: InstanceEntry) -> int:
    """Return the number of ring points of an instance: anchors x weight, rounded, at least 1; 0 if the instance does
    not accept requests, does not prefill or has no anchors.
    """
    if not entry.accepting or entry.role is Role.DECODE or entry.anchors <= 0 or entry.weight <= 0:
        return 0
    return max(1, round(entry.anchors * entry.weight))


def key_shares(instances: Sequence[InstanceEntry]) -> Mapping[str, float]:
    """Return the share (0-1) of the key space that belongs to each accepting instance of a table, averaged over both
    rings; for display, not for routing. The shares depend only on names and anchors, so the last results are cached:
    82,000 anchors take some 100 ms.
    """
    return _shares_of_anchors(tuple((entry.id, count) for entry in instances if (count := anchor_count(entry))))


@lru_cache(maxsize=64)
def _shares_of_anchors(anchors: tuple[tuple[str, int], ...]) -> Mapping[str, float]:
    rings = DualRing(HashRing.of_anchors(anchors, FIRST_SALT), HashRing.of_anchors(anchors, SECOND_SALT))
    return MappingProxyType(dict(rings.shares()))
