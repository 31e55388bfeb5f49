"""Prefix groups: while memory is short, prompts with the same beginning are sent to the same few instances."""

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import PoolVectors
from fairlead.routing.knowledge.rings import SALTS, CandidateRings
from fairlead.tables import RoutingTable

LARGEST_HOME = len(SALTS)
"""Maximum number of instances in a group."""


class PrefixGroups:
    """The assignment of prefix groups to instances. Consistent hashing gives each group `instances` instances, so that
    scaling changes few groups.

    All prompts with the same first `depth` blocks form a group. If a prompt has fewer blocks, its group is determined
    by all its blocks.
    """

    def __init__(self, instances: int, depth: int) -> None:
        self._instances = instances
        self._depth = depth
        self._rings: CandidateRings | None = None

    def table_changed(self, table: RoutingTable) -> None:
        """Use the instances of the new table."""
        self._rings = CandidateRings.of(table.instances, self._instances) if self._instances else None

    def members(self, request: RoutingRequest, vectors: PoolVectors) -> list[int]:
        """Return the indexes, among the candidates, of the instances of the request's group; empty if the request has
        no group or the group includes all candidates.
        """
        if self._rings is None or not request.blocks or self._instances >= len(vectors.loads):
            return []
        depth = min(self._depth, len(request.blocks))
        names = self._rings.candidates((depth, request.blocks[depth - 1]))
        return [index for index, load in enumerate(vectors.loads) if load.entry.id in names]
