"""What an engine's steps cost, fitted to requests that it served, and how far off the fit is."""

from dataclasses import dataclass, field
from datetime import datetime

MOST_POINTS = 300
"""Judged requests that are kept of a fit, for a picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCosts:
    """An engine that computes prompts in pieces, as `fairlead_simulator.engine_model` has it. Seconds and tokens.

    `overhead_seconds` is what a first token takes outside of the engine's steps: network, HTTP, tokenizer. Prefill of x
    new tokens of a sequence then s tokens long takes
    `prefill_fixed + prefill_per_token*x + prefill_per_context*s + prefill_per_pair*x*s`, a decode step
    `decode_fixed + decode_per_context_token * (context tokens of the batch) + decode_per_sequence * (sequences)`.
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
    """Most tokens of one step; given, not fitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAccuracy:
    """How the model's figures for requests it was not fitted to compare with the real ones. Seconds.

    `mean_error` is the mean absolute error as a share of the real mean; `correlation` is Pearson's, None where one of
    the two is constant.
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
class EngineFit:
    """A fit. `source` says in words which requests it is of; the oldest are fitted to, the later ones judge.

    `contradicting` requests had their first token sooner than the prompt tokens they are recorded to have computed take
    (the engine had more of them cached): they are modelled as cached, and neither fitted to nor judged. `at_edges` are
    those that ran beside requests which the records do not have. `points` are pairs (real, modelled) of judged
    requests' TTFT and TPOT.
    """

    source: str
    fitted_at: datetime
    first_at: datetime | None = None
    """When the first request came; None where the records have no date."""
    last_at: datetime | None = None
    engines: int
    requests: int
    fitted: int
    contradicting: int
    at_edges: int
    costs: EngineCosts
    ttft: FitAccuracy
    tpot: FitAccuracy
    ttft_points: list[tuple[float, float]] = field(default_factory=list)
    tpot_points: list[tuple[float, float]] = field(default_factory=list)
