"""Computes the instances that a forecast needs and how far ahead of demand they are needed, from the demand that
instances were observed to serve in time.

A role's capacity is the largest demand per second that one of its instances served in quarters of an hour in which the
pool met its SLO. It is an observed figure, valid for this pool's requests, engine and caches. If the pool never came
near its limit, the figure is less than an instance can do, and a schedule based on it keeps the pool's number at its
peak.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fairlead.forecasts.records import DemandRecord, Rates, Series
from fairlead.instances import Role

LEAST_QUARTERS = 96
"""A capacity must be based on at least this many quarters of an hour in which requests were in time. Together they are
one day.
"""
_MOST = 0.95
"""Quantile of the observed demand that is used as the largest demand. The true maximum is not used, because in single
quarters of an hour requests may have been in time by chance.
"""
_QUIET = 1e-9
LONGEST_REFILL_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """The demand per second that one instance of a role served in time. Prefill or decode is 0 if the role does not do
    this part.
    """

    prefill_tokens: float
    output_tokens: float

    def load(self, rates: Rates) -> Series:
        """Return the demand in instances of the role."""
        loads = [of / most for of, most in self._parts(rates) if most > 0]
        found: Series = np.max(np.vstack(loads), axis=0) if loads else np.zeros(len(rates.requests))
        return found

    def _parts(self, rates: Rates) -> list[tuple[Series, float]]:
        return [(rates.prefill_tokens, self.prefill_tokens), (rates.output_tokens, self.output_tokens)]


def carried_by(record: DemandRecord, percentile: float) -> Mapping[Role, Carried] | None:
    """Return, by role, the demand that one instance served in quarters of an hour in which at least `percentile`
    percent of the requests were in time. None if too few quarters of an hour meet this condition.
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
    """The time, in seconds, by which instances must be requested before the demand. It is the sum of the measured
    duration of a start and the time in which a new instance computes as many tokens as the other instances' caches
    hold.
    """

    start_seconds: float
    refill_seconds: float

    @property
    def seconds(self) -> float:
        return self.start_seconds + self.refill_seconds


def refill_seconds(held_tokens: float, computed_per_second: float) -> float:
    """Return the seconds that an instance takes to fill its cache with this many tokens at this rate; at most an
    hour.
    """
    return min(LONGEST_REFILL_SECONDS, held_tokens / computed_per_second) if computed_per_second > 0 else 0.0


def ahead(values: Series, quarters: int) -> Series:
    """Return, for each quarter of an hour of a week, the largest value from that quarter until `quarters` later. After
    the week's end, the week begins again.
    """
    found: Series = np.max(np.vstack([np.roll(values, -shift) for shift in range(quarters + 1)]), axis=0)
    return found
