"""Mooncake's system-level forecast: the mean decode load of a pool at a later instant. The forecast counts the requests
that decode now and those whose prefill will have finished by that instant.

Requests that finish prefilling by the instant are spread evenly over the decode instances, and the measured lifetimes
say how many decodes will have ended. (The paper assumes that every decode lasts the same time; otherwise that
assumption forgets all decodes that are older than the mean.) As a step's time is linear in context tokens and requests,
the mean over instances needs only the totals.
"""

from collections.abc import Iterator
from math import inf

import numpy as np

from fairlead.routing.admission.lifetimes import DecodeLifetimes
from fairlead.routing.contracts.policies import PoolView

FIRST_SLOTS = 256


class DecodeForecast:
    """Running and expected decodes, by the time each began or is expected to begin. Times are Unix seconds."""

    def __init__(self, decode_seconds: float = 20.0) -> None:
        self._lifetimes = DecodeLifetimes(decode_seconds)
        self._began = np.full(FIRST_SLOTS, inf)
        """When the request in each slot began to decode; infinite if it has not."""
        self._expected = np.full(FIRST_SLOTS, inf)
        """When the request in each slot is expected to decode; infinite if none is expected."""
        self._tokens = np.zeros(FIRST_SLOTS)
        self._slots: dict[str, int] = {}
        self._free: list[int] = list(range(FIRST_SLOTS - 1, -1, -1))

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def decode_seconds(self) -> float:
        """Mean duration of a decode, in seconds; measured."""
        return self._lifetimes.mean_seconds

    def expect(self, request_id: str, at: float, tokens: int) -> None:
        """Expect the request's first token at `at`; call again when that changes."""
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
        """Record that the request has ended. The duration of a `finished` decode joins the measured durations. Unknown
        ids are ignored.
        """
        slot = self._slots.pop(request_id, None)
        if slot is None:
            return
        if finished and self._began[slot] < inf:
            self._lifetimes.observe(now - float(self._began[slot]), now)
        self._began[slot] = self._expected[slot] = inf
        self._free.append(slot)

    def forget_older(self, now: float) -> None:
        """Forget lifetimes that were observed too long ago."""
        self._lifetimes.forget_older(now)

    def totals_at(self, at: float, now: float) -> tuple[float, float]:
        """Return the number of requests expected to decode at `at` (not before now) and their context tokens, over the
        whole pool.
        """
        decoding, coming = self._began <= now, self._expected <= at
        stay = self._lifetimes.remaining(now - self._began[decoding], at - now)
        begun = np.maximum(self._expected[coming], now)  # what is late begins now at the earliest
        come = self._lifetimes.surviving(at - begun)
        tokens = stay @ self._tokens[decoding] + come @ self._tokens[coming]
        return float(stay.sum() + come.sum()), float(tokens)

    def load_at(self, at: float, now: float, view: PoolView) -> float:
        """Return the mean decode load of the pool at `at`: 0 if probably nothing decodes then, infinite if no instance
        decodes.
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
