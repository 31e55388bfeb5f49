"""The costs of an engine's steps, fitted to requests that it served, and the accuracy of the fit."""

from dataclasses import dataclass, field, fields
from datetime import datetime
from math import isfinite
from typing import Any

GREATEST_COST = 1e3
"""Maximum duration of a step in seconds."""
MOST_BATCHED_TOKENS = 2**24
FIGURE_TOKENS = 2_000
"""The prompt or context length, in tokens, for which an engine's costs are given as one figure."""
MOST_POINTS = 300
"""Maximum number of judged requests that are kept with a fit, for a chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCosts:
    """The costs of an engine that computes prompts in pieces, as in `fairlead_simulator.engine_model`.

    Seconds and tokens. `overhead_seconds` is the time of a first token outside of the engine's steps: network, HTTP,
    tokenizer. Prefill of x new tokens of a sequence that is then s tokens long takes `prefill_fixed +
    prefill_per_token*x + prefill_per_context*s + prefill_per_pair*x*s`, a decode step `decode_fixed +
    decode_per_context_token * (context tokens of the batch) + decode_per_sequence * (sequences)`.
    """

    overhead_seconds: float
    prefill_fixed: float
    prefill_per_token: float
    prefill_per_context: float
    prefill_per_pair: float
    decode_fixed: float
    decode_per_context_token: float
    decode_per_sequence: float
    max_batched_tokens: int
    """Maximum number of tokens of one step; given, not fitted."""

    def prefill_tokens_per_second(self) -> float:
        """Return the prefill speed for a prompt of `FIGURE_TOKENS` on an idle engine with nothing cached."""
        tokens = FIGURE_TOKENS
        each = self.prefill_per_token + self.prefill_per_pair * tokens
        return tokens / (self.prefill_fixed + each * tokens + self.prefill_per_context * tokens)

    def decode_step_seconds(self) -> float:
        """Return the duration in seconds of a decode step for a single request with a context of `FIGURE_TOKENS`."""
        return self.decode_fixed + self.decode_per_sequence + self.decode_per_context_token * FIGURE_TOKENS

    def fault(self) -> tuple[str, Any, str] | None:
        """Return the first field with an impossible value, the value, and the remedy; None if the fit can be
        simulated.
        """
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name != "max_batched_tokens" and not (isfinite(value) and 0 <= value <= GREATEST_COST):
                return one.name, value, f"write seconds, from 0 to {GREATEST_COST:g}"
        if not 1 <= self.max_batched_tokens <= MOST_BATCHED_TOKENS:
            return "max_batched_tokens", self.max_batched_tokens, f"write 1 to {MOST_BATCHED_TOKENS:,} tokens"
        if self.decode_fixed + self.decode_per_sequence <= 0:
            return "decode_fixed", self.decode_fixed, "write the duration of a decode step, in seconds above 0"
        if self.prefill_fixed + self.prefill_per_token <= 0:
            return "prefill_per_token", self.prefill_per_token, "write the time per prompt token, in seconds above 0"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAccuracy:
    """The accuracy of the model's figures on requests to which it was not fitted.

    Times are in seconds. `mean_error` is the mean absolute error as a share of the real mean; `correlation` is
    Pearson's correlation, None if the measured or the modelled figures are constant.
    """

    requests: int
    real_mean: float
    real_p50: float
    real_p90: float
    real_p99: float
    modelled_mean: float
    modelled_p50: float
    modelled_p90: float
    modelled_p99: float
    mean_error: float
    correlation: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPoint:
    """A figure of one judged request, as measured and as modelled, in seconds."""

    real: float
    modelled: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFit:
    """The costs of an engine, fitted to requests.

    `source` describes these requests in words; the oldest requests are used for fitting, the later requests for
    judging. `contradicting` requests had their first token sooner than the recorded number of computed tokens allows
    (the engine had more of their tokens cached): they are modelled as cached, and used neither for fitting nor for
    judging. `at_edges` counts requests that ran together with requests missing from the records. `points` are of judged
    requests.
    """

    source: str
    fitted_at: datetime
    first_at: datetime | None = None
    """Time at which the first request arrived; None if the records have no date."""
    last_at: datetime | None = None
    engines: int
    requests: int
    fitted: int
    contradicting: int
    at_edges: int
    costs: EngineCosts
    ttft: FitAccuracy
    tpot: FitAccuracy
    ttft_points: list[FitPoint] = field(default_factory=list)
    tpot_points: list[FitPoint] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEngine:
    """The engine model with which a pool is simulated. If `fit` is None, the model is the preset named by `engine`,
    which was estimated from data sheets. `is_simulated` says that the pool's engines are simulated engines, which are
    modelled as the spec declares them.
    """

    pool: str
    engine: str
    is_simulated: bool
    fit: EngineFit | None = None
    stored_at: datetime | None = None
    stored_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequest:
    """A recorded request, as one engine served it. `at` is the time at which the request was sent to the engine; the
    other times are seconds since then.
    """

    at: datetime
    engine: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    ttft_seconds: float
    answer_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequests:
    """Requests that a pool's engines served, oldest first. `sample_rate` is the lowest share of sessions that was
    recorded during that time. `unknown` counts the recorded requests of that time for which it is not known how they
    were served.
    """

    pool: str
    items: list[ServedRequest]
    sample_rate: float
    unknown: int
