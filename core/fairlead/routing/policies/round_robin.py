"""Round robin: chooses the instances one after the other, regardless of cache and load."""

from bisect import bisect_right
from typing import Final

from fairlead.routing.choosing.candidates import FALLBACKS, nothing, weighed
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.weighing import DecisionRule, PolicyTerms

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_ROUND_ROBIN: Final = DecisionReason.ROUND_ROBIN


class RoundRobin:
    """The policy `round-robin`: it goes through the candidates in order of id.

    It remembers the id chosen last, so that it does not start from the beginning when instances join or leave.
    """

    name = "round-robin"

    def __init__(self, seed: int) -> None:
        self._skip = seed
        self._last: str | None = None

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        candidates = view.candidates()
        count = len(candidates)
        index = (self._skip if self._last is None else bisect_right(candidates, self._last, key=_id)) % count
        chosen = candidates[index].entry.id
        self._last = chosen
        return Decision(
            chosen,
            _ROUND_ROBIN if count > 1 else DecisionReason.ONLY_INSTANCE,
            weighed(request, view, "next-in-turn", (chosen,), nothing),
            tuple([candidates[(index + step) % count].entry.id for step in range(1, min(count, FALLBACKS + 1))]),
        )


def _id(load: InstanceLoad) -> str:
    return load.entry.id


ENTRY = PolicyEntry(
    name=RoundRobin.name,
    intent="Every instance in turn, regardless of cache and load.",
    build=lambda parameters, seed: RoundRobin(seed),
    terms=PolicyTerms(rules=(DecisionRule(code="next-in-turn", because="it was its turn"),)),
)
