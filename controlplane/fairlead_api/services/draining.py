"""Where the sessions of draining instances go: each to the accepting instance with the fewest bound sessions at that moment. Pure."""

import heapq
from collections.abc import Mapping, Sequence


def spread(sessions: Sequence[str], bound: Mapping[str, int]) -> dict[str, str]:
    """Session → target. `bound` counts the sessions of each accepting instance; empty means nobody can take them, so nobody moves."""
    heap = [(count, instance) for instance, count in sorted(bound.items())]
    heapq.heapify(heap)
    targets: dict[str, str] = {}
    for session in sessions:
        if not heap:
            break
        count, instance = heap[0]
        targets[session] = instance
        heapq.heapreplace(heap, (count + 1, instance))
    return targets
