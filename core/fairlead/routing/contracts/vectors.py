"""Pools as vectors: one entry per candidate, in order of id. A policy that reads all instances then takes about as long
with 512 instances as with 64.

Such a policy is a formula over vectors and a selection: the `lowest` costs or the `highest` scores. The view owns the
vectors. They are valid until the next event. A policy computes new vectors from them and never writes into them.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fairlead.routing.contracts.loads import InstanceLoad, OthersLoad
from fairlead.routing.contracts.requests import Overtaken
from fairlead.routing.contracts.rests import among_others, resting

FEW = 16
"""Number of instances up to which a loop is faster than vectors, because an operation on a vector takes about as long
for eight entries as for a hundred.
"""

IntVector = npt.NDArray[np.int64]
FloatVector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolVectors:
    """The counters of the candidates, as vectors.

    `requests` counts requests that are waiting, prefilling or decoding; `waiting` counts requests in this router's
    queue; `queued` counts requests whose prefill has not begun.
    """

    loads: tuple[InstanceLoad, ...]
    pending: IntVector
    """Uncached prompt tokens of requests that are queued or sent and have no first token yet."""
    pending_microseconds: IntVector
    """Predicted time of the pending prefills, in microseconds."""
    decode_tokens: IntVector
    requests: IntVector
    queued: IntVector
    waiting: IntVector
    sessions: IntVector
    """Number of sessions bound to each instance."""
    wait_seconds: FloatVector
    """The part of the pending prefill time, in seconds, for which a new request would wait: the prefill time of all
    requests that are not late yet. It includes the elapsed part of the prefill in flight; see `done_seconds`.
    """
    under_way_since: FloatVector
    """Time at which the oldest prefill in flight began (Unix seconds); infinite without a prefill in flight."""
    under_way_seconds: FloatVector
    """The predicted duration of the oldest prefill in flight, in seconds."""
    decode_share: FloatVector
    """The share of each instance's time (0 to less than 1) that its decodes need to meet the TPOT target; 0 if unknown.
    """
    resting: FloatVector
    """Seconds of rest that each instance takes per second of prefill, computed from `decode_share`. In a rest an engine
    only decodes.
    """
    rested_since: FloatVector
    """Time from which the present rest counts (Unix seconds): the end of the last prefill, plus the seconds of rest
    that earlier prefills still require. Minus infinity before any prefill.
    """
    kv_usage: FloatVector
    """Used share (0-1) of each KV cache: the value that the engine reports. Without a report, it is computed from the
    requests that this router sent to the instance.
    """
    pace: FloatVector
    """Actual over predicted prefill time of each instance, smoothed."""
    lasting_pace: FloatVector
    """Actual over predicted prefill time of each instance, averaged over many more prefills than `pace`."""
    kv_capacity_tokens: int
    share_of: Callable[[InstanceLoad], float]
    counts: "tuple[array[int], ...]"
    measures: "tuple[array[float], ...]"
    """The Python arrays that share memory with the vectors above, in the same order. Writing a single entry is three
    times as fast in a Python array as in a vector.
    """

    @staticmethod
    def of(
        loads: Sequence[InstanceLoad], kv_capacity_tokens: int, share_of: Callable[[InstanceLoad], float] = lambda load: 0.0
    ) -> "PoolVectors":
        """Return the vectors of these loads with their present counters. Each instance has a KV cache of
        `kv_capacity_tokens`; `share_of` returns the share of an instance's time that its decodes need.
        """
        empty = bytes(8 * len(loads))
        counts = tuple(array("q", empty) for _ in range(7))
        measures = tuple(array("d", empty) for _ in range(9))
        pending, pending_microseconds, decode_tokens, requests, queued, waiting, sessions = (
            np.frombuffer(count, dtype=np.int64) for count in counts
        )
        wait_seconds, kv_usage, pace, lasting_pace, under_way_since, under_way_seconds, decode_share, resting, rested_since = (
            np.frombuffer(measure, dtype=np.float64) for measure in measures
        )
        vectors = PoolVectors(
            loads=tuple(loads),
            pending=pending,
            pending_microseconds=pending_microseconds,
            decode_tokens=decode_tokens,
            requests=requests,
            queued=queued,
            waiting=waiting,
            sessions=sessions,
            wait_seconds=wait_seconds,
            kv_usage=kv_usage,
            pace=pace,
            lasting_pace=lasting_pace,
            under_way_since=under_way_since,
            under_way_seconds=under_way_seconds,
            decode_share=decode_share,
            resting=resting,
            rested_since=rested_since,
            share_of=share_of,
            kv_capacity_tokens=kv_capacity_tokens,
            counts=counts,
            measures=measures,
        )
        for index in range(len(loads)):
            vectors.refresh(index)
        return vectors

    def done_seconds(self, now: float) -> FloatVector:
        """Return the elapsed part of each prefill in flight, in seconds; at most its predicted time."""
        done: FloatVector = now - self.under_way_since
        np.maximum(done, 0.0, out=done)
        return np.minimum(done, self.under_way_seconds, out=done)

    def ahead_seconds(self, now: float) -> FloatVector:
        """Return the seconds of queued and running prefills that would be computed before a new request."""
        return self.wait_seconds - self.done_seconds(now)

    def decode_shares(self) -> float:
        """The sum of `decode_share` over all instances."""
        if len(self.loads) > FEW:
            return float(np.add.reduce(self.decode_share))
        *_, decode_share, _, _ = self.measures
        return sum(decode_share)

    def refresh(self, index: int) -> None:
        """Read the counters of the instance at this index again. Only the view may call this."""
        load = self.loads[index]
        pending, pending_microseconds, decode_tokens, requests, queued, queue, sessions = self.counts
        wait_seconds, kv_usage, pace, lasting_pace, under_way_since, under_way_seconds, decode_share, rests, rested_since = self.measures
        waiting, prefilling = load.waiting, load.prefilling
        queue[index] = waiting
        sessions[index] = load.sessions
        pace[index] = load.prefill_pace
        lasting_pace[index] = load.lasting_pace
        pending[index] = load.pending_prefill_tokens
        pending_microseconds[index] = load.pending_prefill_microseconds
        wait_seconds[index] = (load.pending_prefill_microseconds - load.late_prefill_microseconds) / 1e6
        under_way_since[index], under_way_seconds[index] = load.under_way
        decode_share[index] = share = self.share_of(load) if load.decoding or load.others is not None else 0.0
        rests[index] = resting(share) if share else 0.0
        rested_since[index] = -inf if load.last_first_token_at is None else load.last_first_token_at + (load.rest_owed if share else 0.0)
        decode_tokens[index] = load.decode_tokens
        requests[index] = waiting + prefilling + load.decoding
        queued[index] = waiting + prefilling - 1 if prefilling else waiting
        used = load.kv_usage
        if used is None:
            used = min(1.0, (load.decode_tokens + load.dispatched_prefill_tokens) / self.kv_capacity_tokens)
        kv_usage[index] = used
        if load.others is not None:
            self._add(load.others, index)

    def _add(self, others: OthersLoad, index: int) -> None:
        """Add other routers' work to this router's counters. Decodes of other routers are not added, because ties are
        broken by decodes: all routers receive the same figures at the same time, and would all break ties in favour of
        the same instance.
        """
        pending, pending_microseconds, _, requests, *_ = self.counts
        wait_seconds, _, _, _, _, _, decode_share, rests, _ = self.measures
        pending[index] += others.pending_prefill_tokens
        pending_microseconds[index] += others.pending_prefill_microseconds
        wait_seconds[index] += others.pending_prefill_microseconds / 1e6
        requests[index] += others.in_flight
        rests[index] = resting(among_others(decode_share[index], others.prefill_share))


def misses(prompt_tokens: int, hits: IntVector) -> IntVector:
    """Return the number of prompt tokens to compute on each instance, at least one."""
    return np.maximum(1, prompt_tokens - hits)


def lowest(costs: IntVector | FloatVector, count: int, *ties: IntVector | FloatVector) -> list[int]:
    """Return the indexes of the `count` lowest costs, best first. Ties are broken by the lowest value in the first
    vector of `ties`, then in the second, and so on, and finally by the lowest index.
    """
    order = np.lexsort((*reversed(ties), costs)) if ties else costs.argsort(kind="stable")
    first: list[int] = order[:count].tolist()
    return first


def highest(scores: IntVector | FloatVector, count: int, *ties: IntVector | FloatVector) -> list[int]:
    """Return the indexes of the `count` highest scores, best first. Ties are broken by the *lowest* value in the first
    vector of `ties`, then in the second, and so on, and finally by the lowest index.
    """
    return lowest(-scores, count, *ties)


def normalised(values: IntVector | FloatVector) -> FloatVector:
    """Return the values divided by the largest of them; zeros when the largest is zero."""
    largest = float(values.max()) if len(values) else 0.0
    return values / largest if largest > 0 else np.zeros(len(values))


class Overtaking(Protocol):
    """A query for the waiting work that would be sent after a new request."""

    def at(self, instance: str) -> Overtaken:
        """Return the work waiting for this instance that would be sent after the request."""

    def microseconds(self, instances: Sequence[str]) -> FloatVector:
        """Return, for each instance, the predicted time in microseconds of the waiting prefills that would be sent
        after the request.
        """

    def microseconds_in_time(self, instances: Sequence[str]) -> FloatVector:
        """Return, for each instance, the part of `microseconds` that belongs to prefills that can still meet their TTFT
        target.
        """
