"""A model of the refused requests in a pool whose prefill or decode instances have too much work. A role's work is the
number of instances that it keeps busy all the time (`sizing`). With early rejection, the two roles lose requests in
different ways. Excess prefill work is refused by predicted TTFT, which the longest prompts exceed first: few requests
with many tokens. Excess decode work refuses requests of any length. So one missing instance costs more requests in
decode than in prefill; the more the lengths of prompts differ, the larger the difference.

With log-normal lengths, the shortest prompts that hold the share c of all tokens are the share P(P^-1(c) + s) of all
requests (their Lorenz curve), where P is the standard normal distribution and s^2 = ln(1 + v^2) for the coefficient of
variation v. Example: with v = 1.3 and prefill instances for 75 % of the tokens, 95 % of the requests can be served.
This is a model. It ranks splits of the same instances; it does not forecast attainment.
"""

from dataclasses import dataclass
from math import inf, log, sqrt
from statistics import NormalDist

DECODE_LIMIT = 0.9
"""Largest mean share of `slo.tpot` that a decode step may take. The mean must stay below the SLO because decodes cannot
wait: whenever a larger batch makes a step longer than the SLO, its requests miss the SLO. Prefills may wait up to
`slo.ttft`.
"""

_NORMAL = NormalDist()
_LEAST_MORE_SERVED = 0.02
_LEAST_LESS_BUSY = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The known facts about the arriving requests. `prompt_variation` is the standard deviation of prompt lengths
    divided by their mean; `refuses_late` says whether early rejection refuses by predicted TTFT. Rates were measured
    over `window_seconds`.
    """

    requests_per_second: float | None = None
    prompt_variation: float | None = None
    refuses_late: bool = False
    window_seconds: float = 0.0

    def error(self, seconds: float) -> float:
        """Return the standard error of a role's work measured over this many seconds, as a share of the work; 0 if
        unknown.
        """
        if not self.requests_per_second or seconds <= 0:
            return 0.0
        return min(0.5, sqrt((1 + (self.prompt_variation or 0.0) ** 2) / (self.requests_per_second * seconds)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The predicted result of a split of the instances. `servable` is a share (0-1) of the requests; `busiest` is the
    work per instance of the role that has more work per instance.
    """

    servable: float
    busiest: float

    def is_better_than(self, other: "Outlook") -> bool:
        """Return whether this split serves more requests, or equally many with less work for the busiest role. Of two
        splits, at most one is better than the other.
        """
        more = self.servable - other.servable
        if abs(more) >= _LEAST_MORE_SERVED:
            return more > 0
        return self.busiest < other.busiest * (1 - _LEAST_LESS_BUSY)


def outlook(prefill: tuple[int, float], decode: tuple[int, float], demand: Demand) -> Outlook:
    """Return the predicted result of a split; the arguments have the number of instances and the work of each role."""
    (prefill_replicas, prefill_work), (decode_replicas, decode_work) = prefill, decode
    spread = sqrt(log(1 + demand.prompt_variation**2)) if demand.refuses_late and demand.prompt_variation else 0.0
    prefilled = kept_requests(prefill_replicas / prefill_work if prefill_work > 0 else inf, spread)
    decoded = min(1.0, decode_replicas / decode_work) if decode_work > 0 else 1.0
    return Outlook(servable=min(prefilled, decoded), busiest=max(prefill_work / prefill_replicas, decode_work / decode_replicas))


def kept_requests(kept_tokens: float, spread: float) -> float:
    """Return the share (0-1) of the requests that remain if the longest requests are refused until the share
    `kept_tokens` of the tokens remains. `spread` is the sigma of log-normal lengths.
    """
    if kept_tokens >= 1:
        return 1.0
    if kept_tokens <= 0 or spread == 0:
        return max(0.0, kept_tokens)
    return _NORMAL.cdf(_NORMAL.inv_cdf(kept_tokens) + spread)


def median_of(mean: float, variation: float) -> float:
    """Return the median of log-normal lengths with this mean and coefficient of variation."""
    return mean / sqrt(1 + variation**2)


def tokens_within(length: float, variation: float) -> float:
    """Return the share (0-1) of all tokens that belongs to prompts of at most this many times the mean length. Lengths
    are log-normal with this coefficient of variation.

    Example: v = 1.3, prompts of at most four times the mean: 81 % of the tokens in 97 % of the prompts.
    """
    spread = sqrt(log(1 + variation**2))
    if length <= 0 or spread == 0:
        return float(length >= 1)
    return _NORMAL.cdf(log(length) / spread - spread / 2)
