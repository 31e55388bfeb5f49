"""The instances that a forecast needs, from what instances were seen to carry in time, and how far ahead of it.

A role's capacity is the most that one of its instances carried, per second, in quarters of an hour in which the pool
met its SLO: a figure that was seen, on these requests and this engine, with these caches. If the pool never came near
its limit, that is less than an instance can do, and a schedule by it keeps what the pool has at its peak.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fairlead.forecasts.records import DemandRecord, Rates, Series
from fairlead.instances import Role

LEAST_QUARTERS = 96
"""Quarters of an hour in time, with requests, without which no capacity is known: a day's."""
_MOST = 0.95
"""The quantile that counts as the most: single quarters may be in time by luck."""
_QUIET = 1e-9
LONGEST_REFILL_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What one instance of a role carried in time, per second; 0 where the role does not do that part."""

    prefill_tokens: float
    output_tokens: float

    def load(self, rates: Rates) -> Series:
        """The demand in instances of the role."""
        loads = [of / most for of, most in self._parts(rates) if most > 0]
        found: Series = np.max(np.vstack(loads), axis=0) if loads else np.zeros(len(rates.requests))
        return found

    def _parts(self, rates: Rates) -> list[tuple[Series, float]]:
        return [(rates.prefill_tokens, self.prefill_tokens), (rates.output_tokens, self.output_tokens)]


def carried_by(record: DemandRecord, percentile: float) -> Mapping[Role, Carried] | None:
    """What instances carried while at least `percentile` percent of the requests were in time; None if that was never
    seen long enough.
    """
    met = np.nan_to_num(record.in_time, nan=0.0) * 100 >= percentile
    found: dict[Role, Carried] = {}
    for role, instances in record.instances.items():
        seen = met & (np.nan_to_num(instances) > 0) & (np.nan_to_num(record.rates.requests) > _QUIET)
        if seen.sum() < LEAST_QUARTERS:
            return None
        prefill = record.rates.prefill_tokens[seen] / instances[seen] if role is not Role.DECODE else np.zeros(1)
        output = record.rates.output_tokens[seen] / instances[seen] if role is not Role.PREFILL else np.zeros(1)
        found[role] = Carried(prefill_tokens=_most(prefill), output_tokens=_most(output))
    return found


def _most(values: Series) -> float:
    known = values[np.isfinite(values)]
    return float(np.quantile(known, _MOST)) if len(known) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """How far ahead of demand instances must be asked for: the measured time of a start, and the time in which a new
    instance computes as many tokens as the caches of the others hold. Seconds.
    """

    start_seconds: float
    refill_seconds: float

    @property
    def seconds(self) -> float:
        return self.start_seconds + self.refill_seconds


def refill_seconds(held_tokens: float, computed_per_second: float) -> float:
    """How long an instance takes to fill its cache with this many tokens at this rate; at most an hour."""
    return min(LONGEST_REFILL_SECONDS, held_tokens / computed_per_second) if computed_per_second > 0 else 0.0


def ahead(values: Series, quarters: int) -> Series:
    """For each quarter of a week the largest value from then until `quarters` later; the week repeats."""
    found: Series = np.max(np.vstack([np.roll(values, -shift) for shift in range(quarters + 1)]), axis=0)
    return found
