"""Measurements of a pool, per role, from which the needed number of instances is computed.

The control API measures them from the routers' reports and sends them to the operator in `PoolObservations`; the
simulator measures its own pool in the same way. These dataclasses are the wire format (JSON). A figure that could not
be measured is None, and None changes nothing.
"""

from dataclasses import dataclass

from fairlead.instances import Role

ENOUGH_FINISHED = 20
"""Minimum number of finished requests for the window alone to describe the work. With fewer, the last 5 minutes are
used; if these also have fewer, the pool's work is unknown.
"""

_MOST_BEYOND_FINISHED = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStep:
    """The time of one decode step, as fitted: `fixed + per_request * b + per_context_token * c` for a batch of b
    requests with c context tokens together. Seconds.
    """

    fixed_seconds: float
    seconds_per_request: float
    seconds_per_context_token: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSignals:
    """One role over the last `PoolSignals.window_seconds`. Rates are of the whole role and per second.

    A load is a predicted latency over its SLO: the mean of the role's serving instances over the window. 0 = idle, 1 =
    at the SLO; more than 1 means queueing. A load that does not exist for a role is None: `decode_load` of role prefill
    and `prefill_load` of role decode. Role both has both loads.
    """

    role: Role
    serving: int
    """Number of instances in the states Warming and Serving."""
    in_flight: int
    """Number of requests that are queued for instances of the role, or are prefilling or decoding on them, now."""
    waiting: int
    """Number of requests among `in_flight` that are queued in routers."""
    prompt_tokens_per_second: float
    """Prompt tokens per second of the requests that arrived for the pool, including refused requests. The same for
    every role.
    """
    requests_per_second: float | None = None
    """Requests per second that arrived for the pool, including refused requests."""
    finished_requests: int | None = None
    """Number of finished requests from which `cached_share` and the mean output were computed. None: the control API
    does not report it.
    """
    prompt_variation: float | None = None
    """Standard deviation of the requests' prompt tokens divided by their mean, during the last minutes."""
    cached_share: float | None = None
    """Share (0-1) of finished requests' prompt tokens that no instance had to compute."""
    output_tokens_per_second: float
    """Arriving requests per second, including refused requests, times their mean output (`mean_output_tokens`)."""
    prefill_tokens_per_second: float | None = None
    """Prompt tokens per second that one instance computes while it has prompts to compute. None: too few tokens were
    computed, and scaling ignores prefill times.
    """
    pending_prefill_tokens: int = 0
    """Uncached prompt tokens queued or dispatched without a first token, now."""
    decode_step: DecodeStep | None = None
    decode_context_tokens: float | None = None
    """Mean number of context tokens of a decoding request: the prompt and the output so far."""
    prefill_load: float | None = None
    """Predicted time to first token of the pending prefills, divided by `slo.ttft`. None while no speed is measured."""
    decode_load: float | None = None
    """Predicted time per output token, including the wait for room in the KV cache, divided by `slo.tpot`."""
    refused_share: float | None = None
    """Share (0-1) of the arrived requests that were refused because this role has too few instances: by predicted TTFT
    or in a queue (prefill), by the load of decodes (decode).
    """
    ttft_attainment: float | None = None
    """Share (0-1) of the arrived requests that got their first token within `slo.ttft`; refused requests count as late.
    """
    tpot_attainment: float | None = None
    """Share (0-1) of finished requests whose time per output token was within `slo.tpot`."""

    @property
    def knows_work(self) -> bool:
        """Whether enough requests finished to predict the load that arriving requests bring."""
        return self.finished_requests is None or self.finished_requests >= ENOUGH_FINISHED

    @property
    def is_mostly_unfinished(self) -> bool:
        """Whether few requests finished and more requests are running. The finished requests are then mainly short
        requests, and do not represent the work.
        """
        return not self.knows_work and self.in_flight > (self.finished_requests or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSignals:
    """All roles, measured together. `age_seconds` is the age of the newest measurement at the time of sending, by the
    measuring process's clock, so that the clocks of sender and receiver need not agree.
    """

    window_seconds: float
    age_seconds: float
    roles: tuple[RoleSignals, ...]

    def of(self, role: Role) -> RoleSignals | None:
        """Return the signals of a role; None if the role has no signals."""
        return next((one for one in self.roles if one.role is role), None)


def mean_output_tokens(finished: float, output_tokens: float, generated_tokens: float) -> float:
    """Return the mean number of output tokens per request in a period; 0 if no request finished. The arguments are the
    number of finished requests, their output tokens, and all tokens that were generated in the period, including tokens
    of running answers (0 = not reported).

    The mean over finished requests includes long answers only when they end, minutes late if the load has just changed.
    Generated tokens over finished requests is an estimate from all observed parts of answers, as for right-censored
    exponential lifetimes; under constant load both agree. Lengths vary less than exponential lengths, so at first the
    estimate is too large; it is capped at twice the mean of finished requests. Example: 10 answers of 100 tokens
    finished while 10 others got their first 50 tokens: the result is 150.
    """
    if finished <= 0:
        return 0.0
    told = generated_tokens or output_tokens
    return min(told, _MOST_BEYOND_FINISHED * output_tokens) / finished


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDemand:
    """The demand that routers observe: requests that they hold until the pool has an instance, requests in flight, and
    the seconds since any router had a request.

    A router that stopped reporting counts as having had a request until its last report. `idle_seconds` None = not
    known.
    """

    held_requests: int
    held_prompt_tokens: int
    in_flight: int
    idle_seconds: float | None
