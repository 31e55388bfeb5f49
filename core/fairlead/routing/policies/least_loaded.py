"""Least loaded: chooses the instance with the fewest pending uncached prompt tokens, regardless of its cache."""

import numpy as np

from fairlead.routing.choosing.candidates import FALLBACKS, FEW, weighed
from fairlead.routing.choosing.terms import DECODE_TOKENS
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import lowest
from fairlead.routing.contracts.weighing import TOTAL, DecisionRule, PolicyTerms, Term, Unit
from fairlead.tables import RoutingTable


class LeastLoaded:
    """The policy `least-loaded`. Ties go to the fewest context tokens in running decodes, then to the instance that was
    chosen longest ago, then to the lowest id.
    """

    name = "least-loaded"

    def __init__(self) -> None:
        self._chosen_at: dict[str, int] = {}
        self._choices = 0

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        vectors = view.vectors()
        loads, pending = vectors.loads, vectors.pending
        chosen_at = self._chosen_at
        tied: list[int] = np.flatnonzero(pending == pending.min()).tolist()
        best = tied[0]
        if len(tied) > 1:
            best = min(tied, key=lambda index: (loads[index].decode_tokens, chosen_at.get(loads[index].entry.id, 0), index))
        instance = loads[best].entry.id
        self._choices += 1
        chosen_at[instance] = self._choices
        order = lowest(pending, FALLBACKS + 1, vectors.decode_tokens) if len(loads) <= FEW else lowest(pending, FALLBACKS + 1)
        fallbacks = tuple([loads[index].entry.id for index in order if index != best][:FALLBACKS])
        return Decision(
            instance=instance,
            reason=DecisionReason.LEAST_LOADED if len(loads) > 1 else DecisionReason.ONLY_INSTANCE,
            fallbacks=fallbacks,
            weigh=weighed(
                request,
                view,
                "least-pending",
                (instance, *fallbacks),
                lambda load: load.pending_prefill_tokens,
                lambda load: {"decode_tokens": load.decode_tokens},
            ),
        )

    def table_changed(self, table: RoutingTable) -> None:
        present = {entry.id for entry in table.instances}
        self._chosen_at = {instance: at for instance, at in self._chosen_at.items() if instance in present}


ENTRY = PolicyEntry(
    name=LeastLoaded.name,
    intent="The instance with the fewest uncached prompt tokens pending.",
    build=lambda parameters, seed: LeastLoaded(),
    terms=PolicyTerms(
        total=Term(name=TOTAL, words="waiting ahead", unit=Unit.TOKENS),
        terms=(DECODE_TOKENS,),
        rules=(
            DecisionRule(
                code="least-pending",
                because="it had the fewest tokens waiting",
                order=(TOTAL, "decode_tokens"),
                ties="to the one chosen longest ago",
            ),
        ),
    ),
)
