"""Effects of a change of a pool's instances on the hash ring: the share of the keys that get another owner, and the
number of bound sessions that move with these keys. For display and planning, not for routing.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from fairlead.routing.knowledge.rings import FIRST_SALT, SECOND_SALT, HashRing, anchor_count
from fairlead.tables import InstanceEntry

Moves = Mapping[tuple[str, str], float]
"""For each pair of instances: the share (0-1) of the keys that move from the first instance to the second."""


def moved_shares(before: Sequence[InstanceEntry], after: Sequence[InstanceEntry]) -> Moves:
    """Return the keys that change owner between two tables, as shares of all keys. The shares are averaged over the two
    rings, as in `rings.key_shares`.

    Empty when the ring of one of the tables has no instances.
    """
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for salt in (FIRST_SALT, SECOND_SALT):
        for owners, share in moves_between(HashRing.of(before, salt), HashRing.of(after, salt)).items():
            found[owners] += share / 2
    return dict(found)


def moves_between(before: HashRing, after: HashRing) -> Moves:
    """Return the part of the circle (0-1) that each instance loses to each other instance. Both rings have the same
    number of positions.

    Between two neighbouring anchors of either ring the owner does not change, so each such arc is compared only once.
    """
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    ends = sorted({*before.positions, *after.positions})
    start = ends[-1] - before.size if ends else 0
    for end in ends:
        old, new = before.owner_at(end), after.owner_at(end)
        if old is not None and new is not None and old != new:
            found[old, new] += (end - start) / before.size
        start = end
    return dict(found)


def expected_sessions(moves: Moves, shares: Mapping[str, float], bound: Mapping[str, int]) -> float:
    """Return the expected number of bound sessions that move with the keys whose owner changes.

    A session's key is not recorded, so an instance's sessions are assumed to be spread evenly over its keys. If a tenth
    of the instance's keys moves, a tenth of its `bound` sessions is assumed to move.
    """
    lost: defaultdict[str, float] = defaultdict(float)
    for (source, _), share in moves.items():
        lost[source] += share
    return sum(bound.get(name, 0) * min(1.0, share / shares[name]) for name, share in lost.items() if shares.get(name))


def imbalance(shares: Mapping[str, float], instances: Sequence[InstanceEntry]) -> float | None:
    """Return the largest relative amount by which an instance's share of the keys exceeds its share of the anchors: 0.1
    = a tenth more. None on an empty ring.
    """
    anchors = {entry.id: anchor_count(entry) for entry in instances}
    total = sum(anchors.values())
    return max(shares[name] * total / count for name, count in anchors.items() if count) - 1 if total else None
