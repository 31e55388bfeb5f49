"""Filters: select the instances that may be picked, among the considered instances. The classes implement llm-d's
plugins of the given names.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.instances import Role
from fairlead.routing.choosing.considered import BoolVector, Considered
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.choosing.scorers.placements import SessionAffinity, home_place
from fairlead.routing.choosing.scorers.prefixes import absolute
from fairlead.schemas.shapes import REQUIRED, listing, number, text, truth

METRICS = ("active-requests", "running-requests", "waiting-queue", "kv-cache-utilization")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeFilter:
    """`decode-filter`: keeps the instances that decode."""

    def kept(self, seen: Considered, dice: Dice) -> BoolVector:
        return np.array([load.entry.role is not Role.PREFILL for load in seen.loads])


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillFilter:
    """`prefill-filter`: keeps the instances that prefill."""

    def kept(self, seen: Considered, dice: Dice) -> BoolVector:
        return np.array([load.entry.role is not Role.DECODE for load in seen.loads])


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilizationCondition:
    """An upper bound on one metric of an instance."""

    metric: str = text("Metric that is bounded.", enum=METRICS)
    max_value: float = number("Largest value with which an instance passes.", minimum=0.0, maximum=1e12)


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilizationFilter:
    """`utilization-filter`: keeps the instances whose values are all within the bounds."""

    conditions: tuple[UtilizationCondition, ...] = listing(
        UtilizationCondition, "Bounds; an instance passes if it is within all of them.", REQUIRED, key="metric", max_items=len(METRICS)
    )
    fallback_on_empty: bool = truth("Whether all instances pass if none would.", False)

    def kept(self, seen: Considered, dice: Dice) -> BoolVector:
        kept = np.ones(len(seen), dtype=np.bool_)
        for one in self.conditions:
            kept &= self._values(one.metric, seen) <= one.max_value
        return np.ones(len(seen), dtype=np.bool_) if self.fallback_on_empty and not kept.any() else kept

    def _values(self, metric: str, seen: Considered) -> Any:
        match metric:
            case "active-requests":
                return seen.requests
            case "running-requests":
                return seen.requests - seen.queued
            case "waiting-queue":
                return seen.queued
            case _:
                return seen.kv_usage


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCacheAffinity:
    """Parameters of `prefix-cache-affinity-filter`."""

    affinity_threshold: float = number(
        "Minimum share of the prompt that an instance must hold to count as a holder.", 0.8, minimum=0.0, maximum=1.0
    )
    exploration_probability: float = number("Share of requests to which this filter is not applied.", 0.0, minimum=0.0, maximum=1.0)
    max_ttft_penalty_ms: float = number(
        "All instances pass if the TTFT on the best holder exceeds the TTFT on the best other instance by more than this many ms; 0 = never.",
        18_000.0,
        minimum=0.0,
    )
    ttft_source: str = text(
        "How TTFTs are estimated: `prefillThroughput`, from the uncached tokens in flight.",
        "prefillThroughput",
        enum=("prefillThroughput",),
    )
    peak_prefill_throughput: float = number("Prefill speed in tokens per second, used to estimate TTFTs.", 15_928.0, minimum=1e-6)
    prefix_match_info_producer_name: str = text("The producer of the matches, by its name among the plugins.", "")


class PrefixCacheAffinityFilter:
    """`prefix-cache-affinity-filter`: keeps only the instances that hold nearly all of the prompt (the holders). It
    keeps all instances if the TTFT on the best holder exceeds the TTFT on the best other instance by more than the
    allowed penalty. Only the first `most_tokens` of a prompt are compared; 0 = all.
    """

    def __init__(self, parameters: PrefixCacheAffinity, most_tokens: int = 0) -> None:
        self._parameters = parameters
        self._most_tokens = most_tokens

    def kept(self, seen: Considered, dice: Dice) -> BoolVector:
        given = self._parameters
        everyone = np.ones(len(seen), dtype=np.bool_)
        if len(seen) <= 1 or given.affinity_threshold <= 0:
            return everyone
        if given.exploration_probability and dice.fraction() < given.exploration_probability:
            return everyone
        holders = absolute(seen.matched_blocks(), seen.prompt_blocks(self._most_tokens)) >= given.affinity_threshold
        if not holders.any() or holders.all():
            return everyone
        if given.max_ttft_penalty_ms:
            ttft_ms = seen.pending / given.peak_prefill_throughput * 1e3
            if float(ttft_ms[holders].min()) - float(ttft_ms[~holders].min()) > given.max_ttft_penalty_ms:
                return everyone
        return holders


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAffinityFilter(SessionAffinity):
    """`session-affinity-filter`: keeps only the instance to which the session is bound, if that instance is
    considered.
    """

    def kept(self, seen: Considered, dice: Dice) -> BoolVector:
        home = home_place(seen)
        kept = np.full(len(seen), home is None, dtype=np.bool_)
        if home is not None:
            kept[home] = True
        return kept
