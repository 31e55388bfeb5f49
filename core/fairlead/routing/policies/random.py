"""Random: chooses any instance with equal probability. It is a baseline: load is spread evenly, and cache hits are
accidental.
"""

from fairlead.routing.choosing.candidates import FALLBACKS, nothing, weighed
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.weighing import DecisionRule, PolicyTerms


class RandomChoice:
    """The policy `random`. Its fallbacks are the candidates that follow the chosen instance in cyclic order of id."""

    name = "random"

    def __init__(self, seed: int) -> None:
        self._dice = Dice(seed)

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        candidates = view.candidates()
        count = len(candidates)
        index = self._dice.below(count)
        chosen = candidates[index].entry.id
        return Decision(
            instance=chosen,
            reason=DecisionReason.RANDOM if count > 1 else DecisionReason.ONLY_INSTANCE,
            fallbacks=tuple(candidates[(index + step) % count].entry.id for step in range(1, min(count, FALLBACKS + 1))),
            weigh=weighed(request, view, "drawn", (chosen,), nothing),
        )


ENTRY = PolicyEntry(
    name=RandomChoice.name,
    intent="Any instance with equal probability.",
    build=lambda parameters, seed: RandomChoice(seed),
    terms=PolicyTerms(rules=(DecisionRule(code="drawn", because="it was drawn at random"),)),
)
