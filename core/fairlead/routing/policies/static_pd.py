"""Static prefill and decode pools: a request prefills on the instance with the fewest pending tokens, and decodes on
the instance with the fewest context tokens.
"""

from dataclasses import dataclass

from fairlead.instances import Role
from fairlead.routing.choosing.candidates import FALLBACKS, ordered_decision
from fairlead.routing.choosing.terms import DECODE_TOKENS
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import lowest
from fairlead.routing.contracts.weighing import TOTAL, DecisionRule, PolicyTerms, Term, Unit
from fairlead.schemas.shapes import whole
from fairlead.tables import InstanceEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPdParameters(QueueParameters):
    """Parameters of `static-pd`."""

    reserve_tokens: int = whole(
        "KV tokens that a decode instance must have free for the answer, in addition to the prompt.", 512, maximum=1_000_000
    )


class StaticPd:
    """The policy `static-pd`.

    Ties between prefill instances go to the fewest context tokens in running decodes, then to the lowest id. Ties
    between decode instances go to the fewest requests, then to the lowest id.
    """

    name = "static-pd"

    def __init__(self, parameters: StaticPdParameters) -> None:
        self._reserve = parameters.reserve_tokens

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        vectors = view.vectors()
        order = lowest(vectors.pending, FALLBACKS + 1, vectors.decode_tokens)
        best = vectors.loads[order[0]].entry
        return ordered_decision(
            request,
            view,
            order,
            view.hit_vector(request),
            vectors.pending,
            DecisionReason.LEAST_LOADED,
            "least-pending",
            terms=lambda index: {"decode_tokens": float(vectors.decode_tokens[index])},
            decode=least_kv(request, view, best, self._reserve) if best.role is Role.PREFILL else None,
        )


def least_kv(request: RoutingRequest, view: PoolView, prefilled_on: InstanceEntry, reserve_tokens: int) -> str | None:
    """Return the decode instance that holds the fewest context tokens, among the instances that can receive KV blocks
    from `prefilled_on` and have room for the prompt and `reserve_tokens`. If no such instance has room, the condition
    about room is dropped. None if no instance can receive the blocks.
    """
    capacity = view.table.engine.kv_cache_tokens
    ranks: list[tuple[bool, int, int, str]] = []
    for load in view.decode_candidates():
        if not load.entry.pairs_with(prefilled_on):
            continue
        tokens = load.decode_tokens + load.incoming_tokens
        full = tokens + request.prompt_tokens + reserve_tokens > capacity
        ranks.append((full, tokens, load.decoding + load.incoming, load.entry.id))
    return min(ranks)[3] if ranks else None


ENTRY = PolicyEntry(
    name=StaticPd.name,
    intent="Prefill where the least is pending, decode where the least KV is held.",
    build=lambda parameters, seed: StaticPd(parameters),
    parameters=StaticPdParameters,
    needs_roles=(Role.PREFILL, Role.DECODE),
    terms=PolicyTerms(
        total=Term(name=TOTAL, words="waiting ahead", unit=Unit.TOKENS),
        terms=(DECODE_TOKENS,),
        rules=(DecisionRule(code="least-pending", because="it had the fewest tokens waiting", order=(TOTAL, "decode_tokens")),),
    ),
)
