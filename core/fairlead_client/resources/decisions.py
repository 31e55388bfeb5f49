"""Sampled routing decisions: why a request went where it went."""

from dataclasses import dataclass, field
from datetime import datetime

from fairlead.routing.contracts.weighing import Rule, Term
from fairlead.routing.explanations.grounds import LimitValue


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateTerm:
    instance: str
    hit_tokens: int
    miss_tokens: int
    pending_tokens: int
    predicted_ttft_seconds: float
    total: float | None
    terms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingDecision:
    """A sampled decision. Which candidate wins follows from `rule`, the candidates' values of its terms, and `limits`: `terms` say in which unit
    and direction each counts (`total` is among them), `parts` name the terms whose sum the total is. `candidates` are the chosen one, the next best
    and the one passed over, out of `considered` instances. `ttft_seconds` is of `served_by`, which may be another instance after a re-route."""

    id: str
    pool: str
    request: str
    session: str | None
    at: datetime
    router: str
    policy: str
    table_version: int
    chosen: str
    runner_up: str | None
    reason: str
    prompt_tokens: int
    queued_seconds: float | None
    ttft_seconds: float | None
    sample_rate: float
    candidates: list[CandidateTerm]
    rule: Rule
    terms: list[Term]
    parts: list[str]
    limits: list[LimitValue]
    considered: int
    passed_over: str | None
    served_by: str | None
    explanation: str = ""
    """The choice in sentences, made from the fields above."""
