"""Mooncake's system-level forecast: the mean decode load of a pool at a future time. The forecast counts the requests
that decode now and the requests whose prefill will have finished by that time.

Requests that will have finished their prefill are spread evenly over the decode instances. The number of decodes that
will have ended is computed from the measured lifetimes of decodes. (The paper instead assumes that every decode lasts
the mean time; so it ignores decodes that have already lasted longer.) A decode step's time is linear in context tokens
and requests, so the mean over instances needs only the totals.
"""

from collections.abc import Iterator
from math import inf

import numpy as np

from fairlead.routing.admission.lifetimes import DecodeLifetimes
from fairlead.routing.contracts.policies import PoolView

FIRST_SLOTS = 256


class DecodeForecast:
    """Requests that decode now or are expected to decode, each with the time at which its decode began or is expected
    to begin. Times are Unix seconds.
    """

    def __init__(self, decode_seconds: float = 20.0) -> None:
        self._lifetimes = DecodeLifetimes(decode_seconds)
        self._began = np.full(FIRST_SLOTS, inf)
        """Time at which the decode of the request in each slot began; infinite if the decode has not begun. A slot is
        an index of the arrays.
        """
        self._expected = np.full(FIRST_SLOTS, inf)
        """Time at which the decode of the request in each slot is expected to begin; infinite without an expectation.
        """
        self._tokens = np.zeros(FIRST_SLOTS)
        self._slots: dict[str, int] = {}
        self._free: list[int] = list(range(FIRST_SLOTS - 1, -1, -1))

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def decode_seconds(self) -> float:
        """Mean measured duration of a decode, from first token to end, in seconds."""
        return self._lifetimes.mean_seconds

    def expect(self, request_id: str, at: float, tokens: int) -> None:
        """Record that the request's first token is expected at `at` (Unix seconds). A further call replaces the
        expectation.
        """
        slot = self._slot(request_id)
        self._expected[slot] = at
        self._began[slot] = inf
        self._tokens[slot] = tokens

    def begin(self, request_id: str, now: float, tokens: int) -> None:
        """Record that the request starts to decode now."""
        slot = self._slot(request_id)
        self._expected[slot] = inf
        self._began[slot] = now
        self._tokens[slot] = tokens

    def end(self, request_id: str, now: float, *, finished: bool) -> None:
        """Record that the request has ended. If its decode finished (`finished`), its duration becomes a measured
        duration. Unknown ids are ignored.
        """
        slot = self._slots.pop(request_id, None)
        if slot is None:
            return
        if finished and self._began[slot] < inf:
            self._lifetimes.observe(now - float(self._began[slot]), now)
        self._began[slot] = self._expected[slot] = inf
        self._free.append(slot)

    def forget_older(self, now: float) -> None:
        """Forget the measured decode durations if the last finished decode is older than `MEMORY_SECONDS`."""
        self._lifetimes.forget_older(now)

    def totals_at(self, at: float, now: float) -> tuple[float, float]:
        """Return the number of requests expected to decode at the time `at` (not before `now`), and the sum of their
        context tokens. Both are totals over the whole pool.
        """
        decoding, coming = self._began <= now, self._expected <= at
        stay = self._lifetimes.remaining(now - self._began[decoding], at - now)
        begun = np.maximum(self._expected[coming], now)  # what is late begins now at the earliest
        come = self._lifetimes.surviving(at - begun)
        tokens = stay @ self._tokens[decoding] + come @ self._tokens[coming]
        return float(stay.sum() + come.sum()), float(tokens)

    def load_at(self, at: float, now: float, view: PoolView) -> float:
        """Return the pool's mean decode load at the time `at`: 0 if no request is expected to decode then, infinite if
        the pool has no instance that decodes.
        """
        instances = len(view.decode_candidates())
        if not instances:
            return inf
        requests, tokens = self.totals_at(at, now)
        if requests < 0.5:
            return 0.0
        return view.decode_seconds(tokens / instances, requests / instances) / view.table.slo.tpot_seconds

    def known(self) -> Iterator[str]:
        """Ids of the requests that the forecast counts."""
        return iter(self._slots)

    def _slot(self, request_id: str) -> int:
        slot = self._slots.get(request_id)
        if slot is None:
            if not self._free:
                self._grow()
            slot = self._slots[request_id] = self._free.pop()
        return slot

    def _grow(self) -> None:
        count = len(self._began)
        self._began = np.concatenate([self._began, np.full(count, inf)])
        self._expected = np.concatenate([self._expected, np.full(count, inf)])
        self._tokens = np.concatenate([self._tokens, np.zeros(count)])
        self._free.extend(range(2 * count - 1, count - 1, -1))
