"""Wraps a policy and checks each of its answers against the table and the circuits, and against nothing else."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from fairlead.instances import Role
from fairlead.reports.decisions import CandidateScore
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.routing.contracts.decisions import Decision
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import Policy, PoolView, QueuedMove, Rebalances
from fairlead.routing.contracts.requests import QueuedRequest, RoutingRequest
from fairlead.routing.contracts.weighing import DecisionRule, Term
from fairlead.routing.explanations.checking import contradictions
from fairlead.routing.explanations.explaining import explain
from fairlead.routing.explanations.grounds import LimitValue, ground_of, limits_of, rule_of
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.tables import RoutingFacts


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A decision as its record would show it, without its outcome."""

    chosen: str
    rule: DecisionRule
    terms: Sequence[Term]
    limits: Sequence[LimitValue]
    candidates: Sequence[CandidateScore]
    passed_over: str | None
    prompt_tokens: int = 1
    session: str | None = None
    named: str | None = None
    held_seconds: float | None = None
    ttft_seconds: float | None = None
    served_by: str | None = None
    decode: str | None = None

    @property
    def target(self) -> str:
        return self.chosen

    @property
    def served_target(self) -> str | None:
        return self.served_by


class WatchedPolicy:
    """A policy that answers as `inner` does, and raises AssertionError when `inner` chooses a forbidden instance.

    `seen` counts the chosen instances by kind.
    """

    def __init__(self, inner: Policy, seen: Counter[str]) -> None:
        self._inner = inner
        self._seen = seen
        self.name = inner.name
        for ability in ("binds", "cause_to_leave", "placements", "table_changed"):
            if hasattr(inner, ability):
                setattr(self, ability, getattr(inner, ability))
        if isinstance(inner, Rebalances):
            self._moving = inner
            self.rebalance = self._rebalance

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        decision = self._inner.choose(request, view, now)
        able = able_to_prefill(view, now)
        assert decision.instance in able
        assert len({decision.instance, *decision.fallbacks}) == 1 + len(decision.fallbacks), "a fallback is another instance"
        assert {*decision.fallbacks} <= able.keys()
        assert decision.alternate is None or (decision.alternate in able and decision.alternate != decision.instance)
        assert decision.transfer_from is None or (decision.transfer_from in able and decision.transfer_from != decision.instance)
        self._check_weighing(decision)
        if decision.decode is not None:
            assert able[decision.instance].entry.role is Role.PREFILL
            assert decision.decode in able_to_decode(view, now)
        self._seen["choice"] += 1
        for name in ("fallbacks", "alternate", "transfer_from", "decode", "overloaded"):
            self._seen[name] += bool(getattr(decision, name))
        return decision

    def _check_weighing(self, decision: Decision) -> None:
        """Check that the decision's record leads to the same choice, and explains it in a sentence."""
        weighing = decision.weigh()
        terms = BUILT_IN.terms(self.name)
        ground = ground_of(terms, weighing.rule, weighing.limits)
        assert rule_of(terms, weighing.rule) is not None, f"{self.name} does not declare rule {weighing.rule}"
        assert {limit.name for limit in ground.limits} <= limits_of(terms).keys()
        record = Recorded(
            chosen=decision.instance,
            rule=ground.rule,
            terms=ground.terms,
            limits=ground.limits,
            candidates=weighing.candidates,
            passed_over=weighing.passed_over,
        )
        assert contradictions(record, ground.parts, weighing.considered, decision.reason) == []
        assert explain(record).startswith(f"{decision.instance} was chosen: {ground.rule.because}.")
        self._seen[f"{self.name}: {weighing.rule}"] += 1

    def _rebalance(
        self, overloaded: Sequence[str], queues: Mapping[str, Sequence[QueuedRequest]], view: PoolView, now: float
    ) -> Sequence[QueuedMove]:
        waiting = {one.request.id: one for instance in overloaded for one in queues[instance]}
        moves = self._moving.rebalance(overloaded, queues, view, now)
        able = able_to_prefill(view, now)
        assert len({move.request for move in moves}) == len(moves), "a request moves at most once per run"
        for move in moves:
            request = waiting[move.request]
            assert (move.source, move.target) == (request.instance, request.alternate), "a request stays within its pair"
            assert move.target in able
            assert move.source_ttft_seconds > move.target_ttft_seconds, "a move has a benefit"
            assert move.target_ttft_seconds < view.table.slo.ttft_seconds, "a move ends in time"
            self._seen["move"] += 1
        return moves


def able_to_prefill(view: PoolView, now: float) -> dict[str, InstanceLoad]:
    """Return the instances that may get new requests: they accept, and their circuit is closed or spared (see
    `is_spared`).

    A prefill instance counts only if another instance can decode.
    """
    someone_decodes = bool(able_to_decode(view, now))
    return {
        name: load
        for name, load in _healthy(view, now).items()
        if load.entry.role is Role.BOTH or (load.entry.role is Role.PREFILL and someone_decodes)
    }


def able_to_decode(view: PoolView, now: float) -> dict[str, InstanceLoad]:
    """Return the instances that may decode what others prefilled: those of role decode, or of role both if there is
    none.
    """
    healthy = _healthy(view, now)
    decoding = {name: load for name, load in healthy.items() if load.entry.role is Role.DECODE}
    return decoding or {name: load for name, load in healthy.items() if load.entry.role is Role.BOTH}


def _healthy(view: PoolView, now: float) -> dict[str, InstanceLoad]:
    loads = [view.load(entry.id) for entry in view.table.instances if entry.accepting]
    found = [load for load in loads if load is not None]
    return {load.entry.id: load for load in found if not load.is_shut(now) or is_spared(load, found, now)}


def is_spared(load: InstanceLoad, accepting: Sequence[InstanceLoad], now: float) -> bool:
    """Return whether the circuits of all instances that could replace this one are open too.

    Prefill instances can be replaced by any instance, all others only by instances that decode.
    """
    stand_in = [one for one in accepting if load.entry.role is Role.PREFILL or one.entry.role is not Role.PREFILL]
    return all(one.is_shut(now) for one in stand_in)


@contextmanager
def watched_policies(seen: Counter[str]) -> Iterator[None]:
    """Watch the policies of all schedulers that are made or get a table during the block."""

    built = PolicyCatalogue.build

    def watched(catalogue: PolicyCatalogue, facts: RoutingFacts, seed: int) -> Policy:
        return WatchedPolicy(built(catalogue, facts, seed), seen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PolicyCatalogue, "build", watched)
        yield
