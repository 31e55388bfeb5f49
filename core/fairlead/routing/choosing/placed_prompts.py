"""Placed prompts: prompts that a policy sent to an instance's queue and that the instance has not computed yet.

The index of the engines' caches contains a prompt only after its first token. A session's next turn may arrive earlier,
while the previous turn still waits in a long queue. Most of the next turn's prompt will be cached on the instance where
the previous turn was placed, because that instance computes the previous turn first.
"""

from collections import OrderedDict

import numpy as np

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import IntVector, PoolVectors


class PlacedPrompts:
    """Prompts and the instances where they were placed. The key is a prompt's last block, which every longer prompt
    also contains. A prompt is forgotten when it has been computed, or after `seconds`.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._placed: OrderedDict[int, tuple[float, str]] = OrderedDict()
        """Last block of a prompt → the time of its placement and the instance, oldest first."""

    def __len__(self) -> int:
        return len(self._placed)

    def place(self, request: RoutingRequest, instance: str, now: float) -> None:
        """Record that the request was sent to the instance."""
        while self._placed and next(iter(self._placed.values()))[0] <= now - self._seconds:
            self._placed.popitem(last=False)
        if request.blocks:
            self._placed.pop(request.blocks[-1], None)
            self._placed[request.blocks[-1]] = now, instance

    def computed(self, request: RoutingRequest) -> None:
        """Forget the placed prompt, because it has been computed. From now on, the index of the engines' caches
        contains the prompt.
        """
        if request.blocks:
            self._placed.pop(request.blocks[-1], None)

    def with_placed(self, request: RoutingRequest, hits: IntVector, vectors: PoolVectors, block_tokens: int) -> IntVector:
        """Return `hits`, with one placed prompt counted as held by its instance: the longest placed prompt that is a
        prefix of this request's prompt.
        """
        placed = self._placed
        if placed:
            for depth in range(len(request.blocks), 0, -1):
                found = placed.get(request.blocks[depth - 1])
                if found is not None:
                    return self._held(hits, vectors, found[1], min(depth * block_tokens, request.prompt_tokens - 1))
        return hits

    def _held(self, hits: IntVector, vectors: PoolVectors, instance: str, tokens: int) -> IntVector:
        for index, load in enumerate(vectors.loads):
            if load.entry.id == instance and tokens > hits[index]:
                more = np.array(hits)
                more[index] = tokens
                return more
        return hits
