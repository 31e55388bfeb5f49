"""Fairlead's own policy: prefix affinity that grows with load, over all instances, and queues that keep
what can be in time in time.

The instance with the least `wait + rest + affinity x prefill` takes the request. Wait leaves out what is late, as it
stands behind; both wait and rest are longer where much decodes, as its queue gives decodes their time between prefills
(see `queues.deadline`). Affinity, the worth of a cached second of prefill against a second of waiting, is
1 / (1 - load): a second of work at load 0.5 delays those behind it by another second in all, at 0.75 by three. A full
KV cache counts for a little waiting too, or a short prefix that everybody shares would draw all new sessions to whoever
computed it first. Prefills and waits are taken to be as long as those seen on the instance, against the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairlead.reports.bindings import Binding, BindingReason
from fairlead.routing.choosing.binding_reasons import binding_reason
from fairlead.routing.choosing.candidates import FALLBACKS, ordered_decision
from fairlead.routing.choosing.terms import DECODE_TOKENS
from fairlead.routing.choosing.transfers import least_busy_holder, sending_seconds
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.parameters import DISCIPLINES, QueueParameters
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import FloatVector, IntVector, PoolVectors, lowest
from fairlead.routing.contracts.weighing import PASSED_OVER, TOTAL, Comparison, DecisionRule, Holds, Limit, PolicyTerms, Term, Unit
from fairlead.routing.knowledge.pool_load import FULL, affinity
from fairlead.schemas.shapes import number, text, truth
from fairlead.tables import EngineFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class FairleadParameters(QueueParameters):
    """Parameters of `fairlead`."""

    queue_discipline: str = text("As for every policy, but `deadline` unless told otherwise.", "deadline", enum=DISCIPLINES)
    in_flight_seconds: float = number(
        "As for every policy, and only for requests that can still be in time: sent one by one, short prefills leave gaps between them.",
        0.07,
        minimum=0.0,
        maximum=60.0,
    )
    most_affinity: float = number(
        "Seconds of waiting that a second of prefill is worth at most; on an idle pool it is worth one, at load x 1 / (1 - x).",
        8.0,
        minimum=1.0,
        maximum=100.0,
    )
    kv_seconds: float = number(
        "Seconds of waiting that a full KV cache counts for against an empty one, so that small savings do not gather decodes on few instances.",
        0.3,
        minimum=0.0,
        maximum=60.0,
    )
    fetch: bool = truth(
        "Where engines can fetch KV blocks from each other, do so when that is predicted to be faster than computing them.", True
    )


IN_TIME = 0.9
"""An instance that is predicted to take longer than this part of the TTFT target comes after all that are not."""
CHANCE = 0.25
"""By so much the paces of equal instances may differ."""
COPY_COST = 0.1
"""What a second of prefill saved by fetching counts for, against a second of prefill (docs/experiments.md, "Where")."""


TIES = "to the instance with the most sessions, then by id"


class _Prefills(NamedTuple):
    """What the prefill of a request takes on each instance."""

    hits: IntVector
    """Tokens seen to be held."""
    known: IntVector
    """The same, with what the session's home is taken to hold."""
    most: int
    """The longest hit."""
    alone: FloatVector
    """Seconds if nothing is fetched."""
    seconds: FloatVector
    holder: int
    """Index of the instance to fetch from."""

    def source_for(self, index: int) -> int | None:
        """Index of the instance from which that one should fetch; None when it should compute."""
        return self.holder if self.hits[index] < self.most and self.seconds[index] < self.alone[index] else None

    def reason(self, index: int) -> DecisionReason:
        """Why that instance was chosen, when it fetches nothing."""
        if len(self.hits) == 1:
            return DecisionReason.ONLY_INSTANCE
        hit = self.hits[index]
        if self.known[index] > hit:
            return DecisionReason.SESSION_BOUND
        if not hit:
            return DecisionReason.LEAST_LOADED
        return DecisionReason.PREFIX_AFFINITY if hit >= self.most else DecisionReason.PREFIX_OUTWEIGHED


class Fairlead:
    """The policy `fairlead`.

    Bindings record where a session's KV cache is, and guide a router that has not seen the session itself.
    """

    name = "fairlead"
    binds = True

    def __init__(self, parameters: FairleadParameters) -> None:
        self._parameters = parameters

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        vectors = view.vectors()
        home = None if request.session is None else view.binding(request.session)
        fetched = self._fetching(request, home, view, vectors)
        slowness = slownesses(vectors.lasting_pace)
        prefill = fetched.seconds if slowness is None else fetched.seconds * slowness
        ahead = vectors.ahead_seconds(now)
        wait, rest = waits(prefill, ahead, slowness, vectors, now)
        load = view.pool_load()
        worth = affinity(load, self._parameters.most_affinity)
        costs = worth * prefill
        costs += wait
        costs += rest
        costs += self._parameters.kv_seconds * vectors.kv_usage
        limit = IN_TIME * view.table.slo.ttft_seconds
        # While there is time, rests give way to deadlines.
        ttft = prefill + (wait + rest if load >= FULL else ahead if slowness is None else ahead * slowness)
        order, cheapest = in_time_first(costs, ttft, vectors.decode_tokens, vectors.sessions, limit)
        best = order[0]
        instance = vectors.loads[best].entry.id
        source = fetched.source_for(best)
        return ordered_decision(
            request,
            view,
            order,
            fetched.known,
            costs,
            DecisionReason.PREFIX_REPLICATED if source is not None else fetched.reason(best),
            "lowest-cost" if best == cheapest else "in-time-first",
            None if request.session is None else binding_reason(home, instance, BindingReason.SLO, view, now),
            terms=lambda index: {
                "wait_seconds": float(wait[index]),
                "rest_seconds": float(rest[index]),
                "weighted_prefill_seconds": worth * float(prefill[index]),
                "kv_seconds": self._parameters.kv_seconds * float(vectors.kv_usage[index]),
                "prefill_seconds": float(prefill[index]),
                "decode_tokens": float(vectors.decode_tokens[index]),
            },
            limits={"affinity": worth, "in_time_seconds": limit},
            passed_over=None if best == cheapest else cheapest,
            ttfts=lambda index: float(ttft[index]),
            transfer_from=None if source is None else vectors.loads[source].entry.id,
            ttft_seconds=float(ttft[best]),
        )

    def _fetching(self, request: RoutingRequest, home: Binding | None, view: PoolView, vectors: PoolVectors) -> "_Prefills":
        """What the prefill takes on each instance, with the longest prefix fetched where that is allowed and
        worth it.
        """
        loads = vectors.loads
        hits = view.hit_vector(request)
        holder = int(hits.argmax())
        most = int(hits[holder])
        known = hits if home is None else with_home(request, home, loads, hits, most)
        alone = seconds = view.prefill_vector(request, known)
        if most and self._parameters.fetch and view.table.engine.modelled.kv_transfer_bytes_per_second > 0:
            if loads[holder].transfers_out:
                holder = least_busy_holder(hits, most, vectors)
            seconds = np.minimum(alone, fetching_seconds(hits, alone, holder, loads[holder], view.table.engine))
        return _Prefills(hits, known, most, alone, seconds, holder)


def slownesses(paces: FloatVector) -> FloatVector | None:
    """How many times as long as in the mean of the pool each instance takes; 1 where that may be chance, and None where
    it may be for all.
    """
    mean = float(np.add.reduce(paces)) / len(paces)
    if float(np.maximum.reduce(paces)) / mean - 1 <= CHANCE and 1 - float(np.minimum.reduce(paces)) / mean <= CHANCE:
        return None
    relative = paces / mean
    return np.where(np.abs(relative - 1) > CHANCE, relative, 1.0)


def waits(
    prefill: FloatVector, ahead: FloatVector, slowness: FloatVector | None, vectors: PoolVectors, now: float
) -> tuple[FloatVector, FloatVector]:
    """Seconds until all that is ahead (by the pool's speed) is computed, with the rests between, and then until the
    engine has rested for a prefill of so long. An instance of slowness 2 takes twice as long as the mean of the pool.
    """
    resting = vectors.resting
    wait = ahead * resting
    wait += ahead
    if slowness is not None:
        wait *= slowness
    rest = prefill * resting
    np.subtract(rest, now - vectors.rested_since, out=rest, where=ahead <= 0)
    return wait, np.maximum(rest, 0.0, out=rest)


def fetching_seconds(hits: IntVector, alone: FloatVector, holder: int, source: InstanceLoad, engine: EngineFacts) -> FloatVector:
    """What each prefill counts for if it first fetches what `source`, at index `holder`, holds more of the prompt;
    `alone` without fetching.

    That is the fetch, the rest of the prefill, and a tenth of what is saved, so that sessions stay together and caches
    do not fill with copies. Where nothing is held more it is never less than alone.
    """
    per_token = sending_seconds(1, source.transfers_out, engine)
    fixed = float(hits[holder]) * per_token + engine.modelled.kv_transfer_latency_seconds + (1 - COPY_COST) * float(alone[holder])
    seconds: FloatVector = COPY_COST * alone - per_token * hits + fixed
    return seconds


def with_home(request: RoutingRequest, home: Binding, loads: Sequence[InstanceLoad], hits: IntVector, most: int) -> IntVector:
    """The hits (`most` is the largest), with the session's home taken to hold the session's context when nobody is
    seen to hold half as much.

    That is so after a restart of this router, or when the session's last turn came through another one.
    """
    context = min(home.context_tokens, request.prompt_tokens - 1)
    if 2 * most >= context:
        return hits
    for index, load in enumerate(loads):
        if load.entry.id == home.instance:
            known = np.array(hits)
            known[index] = context
            return known
    return hits


def in_time_first(
    costs: FloatVector, ttft: FloatVector, decode_tokens: IntVector, sessions: IntVector, limit_seconds: float
) -> tuple[list[int], int]:
    """Indexes by cost, those whose predicted TTFT is in time before all others when there are any; and the index
    of the lowest cost of all.

    Ties go to the fewest tokens that decode, then to the most sessions. Where much is idle, new sessions then gather on
    few instances, and those that a scale-in takes, which have the fewest, hold little that others lack.
    """
    ties = (decode_tokens, -sessions)
    order = lowest(costs, FALLBACKS + 1, *ties)
    cheapest = order[0]
    if ttft[cheapest] > limit_seconds:
        late = ttft > limit_seconds
        if not late.all():
            order = lowest(late.astype(np.int64), FALLBACKS + 1, costs, *ties)
    return order, cheapest


ENTRY = PolicyEntry(
    name=Fairlead.name,
    intent="Prefix affinity that grows with load, and queues that keep first tokens in time and decodes at their pace.",
    build=lambda parameters, seed: Fairlead(parameters),
    parameters=FairleadParameters,
    terms=PolicyTerms(
        total=Term(name=TOTAL, words="cost", unit=Unit.SECONDS),
        parts=("wait_seconds", "rest_seconds", "weighted_prefill_seconds", "kv_seconds"),
        terms=(
            Term(name="wait_seconds", words="wait", unit=Unit.SECONDS),
            Term(name="rest_seconds", words="until decodes there had their time", unit=Unit.SECONDS),
            Term(name="weighted_prefill_seconds", words="prefill × affinity", unit=Unit.SECONDS),
            Term(name="kv_seconds", words="for a full KV cache", unit=Unit.SECONDS),
            Term(name="prefill_seconds", words="prefill", unit=Unit.SECONDS),
            DECODE_TOKENS,
        ),
        limits=(
            Limit(name="affinity", words="worth of a second of prefill at this load", unit=Unit.SCORE),
            Limit(name="in_time_seconds", words="predicted TTFT that counts as in time", unit=Unit.SECONDS),
        ),
        rules=(
            DecisionRule(code="lowest-cost", because="its cost was the lowest", order=(TOTAL, "decode_tokens"), ties=TIES),
            DecisionRule(
                code="in-time-first",
                because="its cost was the lowest of those predicted to be in time",
                order=(TOTAL, "decode_tokens"),
                ties=TIES,
                among=Comparison(term="predicted_ttft_seconds", holds=Holds.AT_MOST, against="in_time_seconds"),
                given=(Comparison(of=PASSED_OVER, term="predicted_ttft_seconds", holds=Holds.ABOVE, against="in_time_seconds"),),
            ),
        ),
    ),
)
