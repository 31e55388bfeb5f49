"""The cost of a request on each instance under the policy `fairlead`, and the resulting order of instances.

There are two implementations: with vectors, and with a loop for up to `FEW` instances. Both do the same arithmetic in
the same order. A property test checks that their decisions are equal to the last bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from math import fsum
from operator import neg
from typing import NamedTuple

import numpy as np

from fairlead.routing.choosing.candidates import FALLBACKS
from fairlead.routing.contracts.vectors import FEW as FEW
from fairlead.routing.contracts.vectors import FloatVector, IntVector, PoolVectors, lowest

CHANCE = 0.25
"""The largest relative difference between measured speeds that counts as chance."""

Parts = tuple[float, float, float, float]
"""One instance's prefill, wait, rest and weighted prefill, each in seconds. A rest is time without a prefill, in which
an engine only decodes.
"""


class Costs(NamedTuple):
    """The costs of a request on each instance, in seconds. `total` is the cost that the policy compares, `ttft` the
    predicted time to first token.
    """

    prefill: FloatVector
    wait: FloatVector
    rest: FloatVector
    weighted: FloatVector
    total: FloatVector
    ttft: FloatVector

    def parts(self, index: int) -> Parts:
        return float(self.prefill[index]), float(self.wait[index]), float(self.rest[index]), float(self.weighted[index])


class CostsOfFew(NamedTuple):
    """The costs of `Costs` as lists, for pools of up to `FEW` instances."""

    each: list[Parts]
    total: list[float]
    ttft: list[float]

    def parts(self, index: int) -> Parts:
        return self.each[index]


@dataclass(slots=True, kw_only=True)
class Circumstances:
    """The inputs of a request's costs other than its prefill times.

    `slowness` comes from `slownesses`. `overtaken` is the queued work, in seconds, that would be sent after this
    request. `worth` is the weight of a second of prefill. `rests_count` says whether the predicted TTFT includes rests,
    in which an engine only decodes. `kv_seconds` is the cost of a full KV cache.
    """

    now: float
    slowness: FloatVector | None
    overtaken: FloatVector | None
    worth: float
    rests_count: bool
    kv_seconds: float
    leanings: FloatVector | None = None
    """Seconds to add to the cost of each instance: `PoolView.leanings`, plus the cost of the contexts that the request
    would evict; None = nothing to add.
    """


def evicted_tokens(kept: FloatVector, grows: IntVector, capacity_tokens: int) -> FloatVector:
    """Return the number of tokens worth keeping that a request would evict from each instance's cache. `kept` is the
    number of tokens worth keeping in each cache. The request adds `grows` tokens to the cache, so the result is at most
    `grows`.
    """
    return np.clip(kept + grows - capacity_tokens, 0.0, grows)


def together(leanings: FloatVector | None, kept: FloatVector) -> FloatVector:
    """Return the sum of two costs per instance. `leanings` None means zero."""
    return kept if leanings is None else leanings + kept


def slownesses(vectors: PoolVectors) -> FloatVector | None:
    """Return each instance's prefill time relative to the pool's mean (2 = twice as slow). A value is 1 if the
    difference from the mean may be due to chance. None if all values are 1.
    """
    _, _, _, lasting_pace, *_ = vectors.measures
    if max(lasting_pace) <= (1 + CHANCE) * min(lasting_pace):  # then each is as near to the mean
        return None
    paces = vectors.lasting_pace
    mean = fsum(lasting_pace) / len(paces)
    if float(np.maximum.reduce(paces)) / mean - 1 <= CHANCE and 1 - float(np.minimum.reduce(paces)) / mean <= CHANCE:
        return None
    relative = paces / mean
    return np.where(np.abs(relative - 1) > CHANCE, relative, 1.0)


def slownesses_of_few(vectors: PoolVectors) -> list[float] | None:
    """Return the result of `slownesses` as a list, computed without numpy, for pools of up to `FEW` instances."""
    _, _, _, paces, *_ = vectors.measures
    fastest, slowest = min(paces), max(paces)
    if slowest <= (1 + CHANCE) * fastest:
        return None
    mean = fsum(paces) / len(paces)
    if slowest / mean - 1 <= CHANCE and 1 - fastest / mean <= CHANCE:
        return None
    return [pace / mean if abs(pace / mean - 1) > CHANCE else 1.0 for pace in paces]


def costs_over_vectors(alone: FloatVector, vectors: PoolVectors, given: Circumstances) -> Costs:
    """Return the costs of prefills that would take `alone` seconds at the pool's mean speed."""
    slowness = given.slowness
    prefill = alone if slowness is None else alone * slowness
    ahead = vectors.ahead_seconds(given.now)
    if given.overtaken is not None:
        ahead -= given.overtaken
    wait, rest = waits(prefill, ahead, slowness, vectors, given.now)
    weighted = given.worth * alone
    if slowness is not None:  # a slow instance takes longer for it, but as much fewer requests wait there
        weighted += prefill - alone
    total = weighted + wait
    total += rest
    total += given.kv_seconds * vectors.kv_usage
    if given.leanings is not None:
        total += given.leanings
    ttft = prefill + (wait + rest if given.rests_count else ahead if slowness is None else ahead * slowness)
    return Costs(prefill, wait, rest, weighted, total, ttft)


def waits(
    prefill: FloatVector, ahead: FloatVector, slowness: FloatVector | None, vectors: PoolVectors, now: float
) -> tuple[FloatVector, FloatVector]:
    """Return two times per instance, in seconds: the wait and the rest. The wait is the time to compute all work ahead
    of the request, including the rests between prefills, in which the engine only decodes. The wait on an instance with
    slowness 2 is twice as long as at the pool's mean speed. The rest is the time for which the engine must only decode
    directly before this request's prefill. If no work is ahead of the request, rest that the engine has already taken
    is subtracted.
    """
    resting = vectors.resting
    wait = ahead * resting
    wait += ahead
    if slowness is not None:
        wait *= slowness
    rest = prefill * resting
    np.subtract(rest, now - vectors.rested_since, out=rest, where=ahead <= 0)
    return wait, np.maximum(rest, 0.0, out=rest)


def costs_one_by_one(alone: list[float], vectors: PoolVectors, given: Circumstances) -> CostsOfFew:
    """Return the costs for up to `FEW` instances, computed in a loop instead of with numpy. The results are equal to
    the vectors' results to the last bit; in a pool without slow instances, every factor is exactly 1. `given.slowness`
    is ignored and computed again.
    """
    slow = slownesses_of_few(vectors) or repeat(1.0)
    overtaken = repeat(0.0) if given.overtaken is None else given.overtaken.tolist()
    now, worth, kv_seconds, rests_count = given.now, given.worth, given.kv_seconds, given.rests_count
    wait_seconds, kv_usages, _, _, begun, under_way_seconds, _, restings, rested = vectors.measures
    each: list[Parts] = []
    total: list[float] = []
    ttft: list[float] = []
    rows = zip(alone, slow, overtaken, wait_seconds, begun, under_way_seconds, restings, rested, kv_usages, strict=False)
    for seconds, times, passed, ahead, since, under_way, resting, rested_since, kv_usage in rows:
        prefill = seconds * times
        if under_way and now > since:
            done = now - since
            ahead -= done if done < under_way else under_way
        ahead -= passed
        rest = 0.0
        if resting:
            wait = (ahead * resting + ahead) * times
            rest = prefill * resting if ahead > 0 else prefill * resting - (now - rested_since)
            if rest < 0.0:
                rest = 0.0
        else:
            wait = ahead * times
            if ahead <= 0 and rested_since > now:
                rest = rested_since - now
        weighted = worth * seconds + (prefill - seconds)
        each.append((prefill, wait, rest, weighted))
        total.append(weighted + wait + rest + kv_seconds * kv_usage)
        ttft.append(prefill + (wait + rest if rests_count else ahead * times))
    if given.leanings is not None:
        total = [cost + leaning for cost, leaning in zip(total, given.leanings.tolist(), strict=True)]
    return CostsOfFew(each, total, ttft)


def in_time_first(costs: Costs, vectors: PoolVectors, limit_seconds: float, most_extra: float) -> tuple[Sequence[int], int]:
    """Return the candidates' indexes in order of preference, and the index of the lowest cost.

    The order is by cost, with one exception: the cheapest instance exceeds the TTFT limit, and an instance within the
    limit costs at most `most_extra` more. Then all instances within the limit come first. Ties go to the fewest
    decoding tokens, then to the most sessions. So in an idle pool, new sessions are placed on few instances. A scale-in
    can then remove the other instances, whose caches are of little value.
    """
    ties = (vectors.decode_tokens, -vectors.sessions)
    order = lowest(costs.total, FALLBACKS + 1, *ties)
    cheapest = order[0]
    if costs.ttft[cheapest] > limit_seconds:
        late = costs.ttft > limit_seconds
        if not late.all() and np.minimum.reduce(costs.total[~late]) <= costs.total[cheapest] + most_extra:
            order = lowest(late.astype(np.int64), FALLBACKS + 1, costs.total, *ties)
    return order, cheapest


def in_time_first_of_few(costs: CostsOfFew, vectors: PoolVectors, limit_seconds: float, most_extra: float) -> tuple[Sequence[int], int]:
    """Return the result of `in_time_first` for pools of up to `FEW` instances."""
    total = costs.total
    _, _, decode_tokens, _, _, _, sessions = vectors.counts
    if len(set(total)) == len(total):
        order = sorted(range(len(total)), key=total.__getitem__)
    else:
        order = [index for _, _, _, index in sorted(zip(total, decode_tokens, map(neg, sessions), range(len(total)), strict=True))]
    cheapest = order[0]
    if costs.ttft[cheapest] > limit_seconds:
        first = next((index for index in order if costs.ttft[index] <= limit_seconds), cheapest)
        if total[first] <= total[cheapest] + most_extra:
            order.sort(key=lambda index: costs.ttft[index] > limit_seconds)
    return order[: FALLBACKS + 1], cheapest
